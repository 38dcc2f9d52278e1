"""Replies of token-service to what management-service asks about the custom-claims function."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import nats.errors
import pytest

from identity_common.clock import now_ms
from identity_common.sealing import SealingKeys
from identity_common.wire.claims_function import (
    CheckScript,
    ClaimsFunctionRequests,
    DryRun,
    DryRunAnswer,
    DryRunOfInput,
    Failures,
    Function,
    ReadFailures,
    ReadRecording,
    RecordingState,
    ScriptChecked,
    ScriptTested,
    StartRecording,
    TestScript,
    Unavailable,
)
from tests.support.claims_function import ClaimsFunction
from tests.support.claims_workers import workers_of
from tests.support.waiting import eventually
from tests.support.world import World

DAY_MS = 86_400_000


@pytest.fixture
def function(world: World) -> Iterator[ClaimsFunction]:
    function = ClaimsFunction(world)
    yield function
    function.remove()
    function.asked(StartRecording(kind="access-token", minutes=0))


def body(result: str) -> str:
    return f"const getCustomJwtClaims = async ({{ token, context, environmentVariables, api }}) => ({result});"


def result_of(function: ClaimsFunction, script: str, **arguments: Any) -> ScriptTested:
    question = TestScript(
        kind="access-token",
        function=Function(script=script, environment_variables=arguments.get("variables", {})),
        token=arguments.get("token", {}),
        context=arguments.get("context", {}),
    )
    answer = function.asked(question)
    assert isinstance(answer, ScriptTested)
    return answer


def dry_run(function: ClaimsFunction, candidate: str, active: str | None = None, **changes: Any) -> DryRunAnswer:
    question = DryRun(
        kind="access-token",
        candidate=Function(script=candidate),
        active=None if active is None else Function(script=active),
        **changes,
    )
    answer = function.asked(question)
    assert isinstance(answer, DryRunAnswer)
    return answer


def test_a_script_is_parsed_and_searched_for_the_function(function: ClaimsFunction) -> None:
    assert function.asked(CheckScript(script=body("{}"))) == ScriptChecked()
    for script, reason in (("const getCustomJwtClaims = async (", "syntax"), ("const claims = 1;", "no-function")):
        answer = function.asked(CheckScript(script=script))
        assert isinstance(answer, ScriptChecked)
        assert answer.problem is not None
        assert answer.problem.reason == reason


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_check_that_does_not_end_is_not_blamed_on_the_script(function: ClaimsFunction) -> None:
    assert function.asked(CheckScript(script=body("{}"))) == ScriptChecked()
    for pid in workers_of(os.getpid()):
        os.kill(pid, signal.SIGSTOP)

    assert function.asked(CheckScript(script=body("{}"))) == Unavailable()
    for pid in workers_of(os.getpid()):
        os.kill(pid, signal.SIGCONT)
    assert function.asked(CheckScript(script=body("{}"))) == ScriptChecked()


def test_a_test_runs_the_script_with_the_given_arguments(function: ClaimsFunction) -> None:
    script = body("{ a: token.aud, c: context, v: environmentVariables.V, sub: 'x', iss: 'y' }")

    assert result_of(function, script, token={"aud": "b"}, context={"user": {"id": 1}}, variables={"V": "w"}) == (
        ScriptTested(claims={"a": "b", "c": {"user": {"id": 1}}, "v": "w"}, dropped=["iss", "sub"])
    )
    assert result_of(function, body("api.denyAccess('no')")) == ScriptTested(denied="no")
    assert result_of(function, body("api.denyAccess()")) == ScriptTested(denied="")
    problem = result_of(function, body("context.user.name")).problem
    assert problem is not None
    assert problem.reason == "exception"


def test_a_test_leaves_no_failure_behind(function: ClaimsFunction) -> None:
    before = function.asked(ReadFailures(kind="client-credentials"))
    result_of(function, body("nothing.there"))

    assert function.asked(ReadFailures(kind="client-credentials")) == before
    assert isinstance(before, Failures)


def test_nothing_is_recorded_unless_an_operator_asked_for_it(world: World, function: ClaimsFunction) -> None:
    function.set(body("{}"))
    assert world.exchange(world.subject_token()).status_code == 200

    assert dry_run(function, body("{ new: 1 }")) == DryRunAnswer()


def test_a_dry_run_shows_what_a_candidate_would_change_for_recorded_inputs(
    world: World, function: ClaimsFunction
) -> None:
    """Without a function, too: the first version can be judged before it is saved."""
    before = now_ms()
    started = function.asked(StartRecording(kind="access-token", minutes=5))
    assert isinstance(started, RecordingState)
    assert before + 300_000 <= started.until <= now_ms() + 300_000
    exchanged_at = now_ms()
    for _ in range(2):
        assert world.exchange(world.subject_token()).status_code == 200
    assert world.client_credentials().status_code == 200  # the other kind
    candidate = body("{ same: 1, other: context.user.id, new: token.aud, sub: 'dropped' }")
    eventually(lambda: len(dry_run(function, candidate).runs) == 2)

    answer = dry_run(function, candidate, body("{ same: 1, other: 'x', old: 1, older: 2 }"))

    assert answer == DryRunAnswer(
        runs=[
            DryRunOfInput(
                recorded_at=run.recorded_at,
                added={"new": world.resource},
                changed={"other": world.customer},
                removed=["old", "older"],
                dropped=["sub"],
            )
            for run in answer.runs
        ]
    )
    assert exchanged_at <= answer.runs[1].recorded_at <= answer.runs[0].recorded_at <= now_ms()
    denied = dry_run(function, body("api.denyAccess('no')"))
    assert [(run.denied, run.problem) for run in denied.runs] == [("no", None)] * 2
    failed = dry_run(function, body("nothing.there"))
    assert [run.problem.reason for run in failed.runs if run.problem] == ["exception"] * 2
    denying = dry_run(function, body("{ new: 1 }"), body("api.denyAccess('no')"))
    assert [(run.active_denied, run.active_problem, run.added) for run in denying.runs] == [
        ("no", None, {"new": 1})
    ] * 2
    failing = dry_run(function, body("api.denyAccess()"), body("nothing.there"))
    assert [run.active_problem.reason for run in failing.runs if run.active_problem] == ["exception"] * 2
    assert [(run.denied, run.active_denied) for run in failing.runs] == [("", None)] * 2
    assert dry_run(function, candidate, timeout_ms=0) == DryRunAnswer(omitted=2)


def test_recorded_inputs_are_sealed_limited_and_forgotten(world: World, function: ClaimsFunction) -> None:
    function.asked(StartRecording(kind="access-token", minutes=100_000))
    for _ in range(3):
        assert world.exchange(world.subject_token()).status_code == 200
    eventually(lambda: len(dry_run(function, body("{}")).runs) == 3)

    keys = [
        key for key in world.redis.scan_iter("identity:default:claims-function:access-token:*") if b"fail" not in key
    ]
    state = function.asked(ReadRecording(kind="access-token"))
    assert isinstance(state, RecordingState)
    assert (state.until > now_ms(), state.inputs) == (True, 3)
    assert len(keys) == 5  # until when, how many, three inputs
    assert all(0 < world.redis.pttl(key) <= DAY_MS for key in keys)
    assert not [key for key in keys if world.customer.encode() in (world.redis.get(key) or b"")]

    assert function.asked(StartRecording(kind="access-token", minutes=0)) == RecordingState(until=0)
    assert function.asked(ReadRecording(kind="access-token")) == RecordingState(until=0)
    assert not [key for key in world.redis.scan_iter("identity:default:claims-function:access-token:*") if key in keys]
    assert world.exchange(world.subject_token()).status_code == 200
    assert dry_run(function, body("{}")) == DryRunAnswer()


@pytest.mark.heavy
def test_a_captured_request_gets_no_reply_later(world: World, function: ClaimsFunction) -> None:
    keys = SealingKeys(world.stack.token_settings.environment_variable_keys)
    tenant_id = world.stack.tenant_id
    question = StartRecording(kind="access-token", minutes=5)
    captured = ClaimsFunctionRequests(keys, tenant_id=tenant_id, clock=lambda: now_ms() - 31_000).seal_question(
        question
    )
    with pytest.raises(nats.errors.TimeoutError):
        function.raw_reply(captured)
    assert function.asked(ReadRecording(kind="access-token")) == RecordingState(until=0)


@pytest.mark.heavy
def test_what_another_key_has_sealed_gets_no_reply(function: ClaimsFunction) -> None:
    with pytest.raises(nats.errors.TimeoutError):
        function.raw_reply(b"x" * 64)
