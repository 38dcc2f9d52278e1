"""What crosses the bus about the custom-claims function: readable with the right keys, and in its own place only."""

import base64
import os

import pytest

from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.wire.claims_function import (
    MAX_MESSAGE_BYTES,
    CheckScript,
    ClaimsFunctionRequests,
    DryRun,
    Function,
    Question,
    ReadFailures,
    ReadRecording,
    ScriptChecked,
    ScriptTested,
    SealedVariables,
    StartRecording,
    TestScript,
)
from identity_common.wire.sealed_requests import UnreadableMessageError

KEYS = SealingKeys([base64.b64encode(os.urandom(32)).decode()])
REQUESTS = ClaimsFunctionRequests(KEYS, tenant_id="default")
OTHER_KEYS = ClaimsFunctionRequests(SealingKeys([base64.b64encode(os.urandom(32)).decode()]), tenant_id="default")
OTHER_TENANT = ClaimsFunctionRequests(KEYS, tenant_id="other")
QUESTIONS = (
    CheckScript(script="s"),
    TestScript(kind="access-token", function=Function(script="s"), token={"a": 1}, context={"b": [None]}),
    DryRun(kind="access-token", candidate=Function(script="s"), active=Function(version=3, script="t")),
    StartRecording(kind="client-credentials", minutes=0),
    ReadRecording(kind="access-token"),
    ReadFailures(kind="client-credentials"),
)
VARIABLES = {"A": "ä", "": ""}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_a_request_is_read_as_it_was_sent(question: Question) -> None:
    assert REQUESTS.open_question(REQUESTS.seal_question(question)) == question


def test_a_request_is_not_readable_elsewhere() -> None:
    sealed = REQUESTS.seal_question(CheckScript(script="the script"))
    assert b"the script" not in sealed
    for altered in (sealed[:-1], sealed[:11], b"", sealed[:20] + bytes([sealed[20] ^ 1]) + sealed[21:]):
        with pytest.raises(UnreadableMessageError):
            REQUESTS.open_question(altered)
    for other in (OTHER_KEYS, OTHER_TENANT):
        with pytest.raises(UnreadableMessageError):
            other.open_question(sealed)
    with pytest.raises(UnreadableMessageError):  # a request is not a reply to itself
        REQUESTS.open_answer(sealed, sealed_question=sealed)


def test_a_captured_request_is_refused_after_half_a_minute() -> None:
    """The clocks of the two services may differ, so one from as far ahead is accepted."""
    now = 1_764_547_200_000
    requests = ClaimsFunctionRequests(KEYS, tenant_id="default", clock=lambda: now)
    sent_at, question = now, StartRecording(kind="access-token", minutes=60)
    captured = requests.seal_question(question)
    for late_ms, is_fresh in ((0, True), (30_000, True), (30_001, False), (-30_000, True), (-30_001, False)):
        now = sent_at + late_ms
        if is_fresh:
            assert requests.open_question(captured) == question
        else:
            with pytest.raises(UnreadableMessageError, match="30 s"):
                requests.open_question(captured)


def test_a_reply_is_readable_for_its_own_request_only() -> None:
    one, same = (REQUESTS.seal_question(CheckScript(script="s")) for _ in range(2))
    answer = REQUESTS.seal_answer(ScriptChecked(), sealed_question=one)
    assert REQUESTS.open_answer(answer, sealed_question=one) == ScriptChecked()
    for reader, question in ((REQUESTS, same), (OTHER_KEYS, one), (OTHER_TENANT, one)):
        with pytest.raises(UnreadableMessageError):
            reader.open_answer(answer, sealed_question=question)
    with pytest.raises(UnreadableMessageError):
        REQUESTS.open_question(answer)


def test_the_largest_function_fits_into_a_message() -> None:
    """Even two of them, each with characters that JSON writes with two."""
    function = Function(script='"' * 64 * 1024, environment_variables={"A": "\\" * 16 * 1024})
    dry_run = DryRun(kind="access-token", candidate=function, active=function)
    assert len(REQUESTS.seal_question(dry_run)) < MAX_MESSAGE_BYTES


def test_sealed_variables_belong_to_one_version_of_one_kind_and_tenant() -> None:
    variables, elsewhere = SealedVariables(KEYS, tenant_id="default"), SealedVariables(KEYS, tenant_id="other")
    sealed = variables.seal(VARIABLES, kind="access-token", version=2)
    assert variables.open(sealed, kind="access-token", version=2) == VARIABLES
    assert variables.is_newest(sealed, kind="access-token", version=2)
    for reader, kind, version in (
        (variables, "access-token", 1),
        (variables, "client-credentials", 2),
        (elsewhere, "access-token", 2),
    ):
        with pytest.raises(NoFittingKeyError):
            reader.open(sealed, kind=kind, version=version)  # type: ignore[arg-type]


def test_no_variables_are_empty_text() -> None:
    variables = SealedVariables(KEYS, tenant_id="default")
    assert variables.seal({}, kind="access-token", version=1) == ""
    assert variables.open("", kind="access-token", version=1) == {}
    assert variables.is_newest("", kind="access-token", version=1)


def test_messages_hide_their_contents() -> None:
    for message in (*QUESTIONS, ScriptTested(claims={"secret": 1})):
        assert repr(message) == str(message) == f"{type(message).__name__}(…)"
