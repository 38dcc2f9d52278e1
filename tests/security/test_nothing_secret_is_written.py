"""No secret is written anywhere (CVE-2023-46255, CVE-2024-32967).

Every test that talks to the running stack records the secrets that it mints and presents. This file creates secrets of
every kind and searches for them; the end of the run searches everything again (``stack`` in ``tests/conftest.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from identity_common.identifiers import new_secret
from tests.support.captured_logs import lines_of
from tests.support.recorder import MINTED, Recorder
from tests.support.signing_in import SignIn
from tests.support.world import World, outcome
from tests.support.written import Written

KINDS = {
    *MINTED.values(),
    "code",
    "password",
    "basic credentials",
    "password of postgresql+asyncpg",
    "password of redis",
    "password of nats",
    "key-encryption key",
} - {"invitation"}  # none is made here


@pytest.fixture(scope="module")
def written(world: World, run_directory: Path) -> Written:
    """Everything that was written so far, and by one more round of every kind of request."""
    user = world.management.users.create(name="Last", password=new_secret()).id
    world.management.users.set_password(user, new_secret())
    client = world.client("Traditional")
    assert outcome(world.exchange(world.subject_token(user), client=client)) == (200, None)
    assert outcome(world.with_actor(world.userinfo_token(user))) == (200, None)
    assert outcome(world.client_credentials()) == (200, None)
    _signed_in(world, user)
    _refusals(world, user)
    return Written(world.stack, run_directory)


@pytest.fixture
def recorder(written: Written) -> Recorder:
    """The recorder of every secret so far."""
    return written.recorder


def _signed_in(world: World, user: str) -> None:
    """Redeem, refresh, and do both again: a second use is logged."""
    sign_in = SignIn(world, user_id=user)
    refresh_token = sign_in.tokens()["refresh_token"]
    sign_in.refreshed(refresh_token)
    assert outcome(sign_in.redeem()) == (400, "invalid_grant")
    assert outcome(sign_in.refresh(refresh_token)) == (400, "invalid_grant")


def _refusals(world: World, user: str) -> None:
    """Provoke refusals of every kind with real secrets in the requests."""
    token = world.subject_token(user)
    secret = world.traditional.secret or ""
    access_token = world.client_credentials().json()["access_token"]
    world.exchange(token)
    for answer in (
        world.exchange(token),
        world.exchange(world.subject_token(user), subject_token_type=token),
        world.exchange(world.subject_token(user), resource=f"https://x.example/?{secret}"),
        world.exchange(world.subject_token(user), actor_token=access_token, actor_token_type=access_token),
        world.with_actor(access_token),
        world.stack.token_request({"grant_type": secret, "client_id": secret, "client_secret": token}),
        world.stack.token_request({}, Authorization=f"Bearer {access_token}", Identity_Revision=secret),
        world.stack.http.get(f"/api/users/{token}", headers={"Authorization": f"Bearer {access_token}"}),
        world.stack.http.get(f"/oidc/{secret}", params={"subject_token": token}),
        world.stack.http.post("/api/users", json={"password": secret}, headers={"Authorization": f"Bearer {token}"}),
    ):
        assert 400 <= answer.status_code < 500


def test_the_recorder_finds_what_is_there(recorder: Recorder) -> None:
    """The control: every kind was seen, and would be found in a line of any shape."""
    assert set(recorder.secrets.values()) >= KINDS
    for kind in KINDS:
        secret = next(secret for secret, each in recorder.secrets.items() if each == kind)
        for line in (secret, json.dumps({"a": [secret]}), f"x={secret}&y=1", f"Basic {secret}==", f"u:{secret}@host"):
            assert [found.partition(":")[0] for found in recorder.found([line])] == [kind], (kind, line)
    assert recorder.found(["nothing of that kind", ""]) == []


def test_no_log_line_holds_a_secret(written: Written, run_directory: Path) -> None:
    """CVE-2023-46255: the services' own lines and those of the three servers."""
    events = {line["event"] for line in lines_of(run_directory / "services.log")}

    assert events >= {"subject-token.refused", "actor-token.refused", "code.replayed"}
    assert len(written.logs()) >= 2
    assert written.recorder.found(written.logs()) == []


def test_no_log_line_names_a_person_or_quotes_a_body(world: World, run_directory: Path) -> None:
    """Ids only."""
    person = world.management.users.create(
        name="Ada Hunter-Two", primary_email="ada@hunter2.example.com", primary_phone="+15550100999"
    )
    token = world.subject_token(person.id)
    world.management.users.suspend(person.id)
    assert world.exchange(token).status_code == 400
    text = str(lines_of(run_directory / "services.log"))

    assert not [each for each in ("Ada Hunter-Two", "hunter2.example.com", "15550100999") if each in text]
    assert person.id in text


def test_no_answer_holds_a_secret_but_the_one_that_minted_it(recorder: Recorder) -> None:
    """CVE-2024-32967: no error, no list, no header; nor is a caller's secret echoed."""
    assert sum(recorder.answers.values()) > 20
    assert recorder.answers[400]
    assert recorder.answers[401]
    assert recorder.found(recorder.said) == []


def test_no_message_of_a_stream_holds_a_secret(written: Written) -> None:
    """Neither a secret, nor a password, nor a password's hash."""
    messages = written.messages()

    assert len(messages) > 20
    assert written.recorder.found(messages) == []
    assert not [message for message in messages if "$argon2" in message]


def test_no_metric_holds_a_secret(world: World, written: Written) -> None:
    """On the metrics page of each service; nor an id, which would create one series each."""
    pages = written.metrics()

    assert all("stead_http_requests_total{" in page for page in pages)
    assert written.recorder.found(pages) == []
    ids = (world.customer, world.agent, world.traditional.id, world.machine.id)
    assert not [each for page in pages for each in ids if each in page]


def test_no_store_holds_a_token_or_a_secret_in_plain_text(world: World, written: Written) -> None:
    """Hashes only, in Redis and in every table of every database; private keys are encrypted."""
    assert written.recorder.found(written.in_redis()) == []
    rows = written.rows()
    assert len(rows) > 20
    assert written.recorder.found(rows) == []
    number = world.forger.key.private_numbers().private_value.to_bytes(32, "big").hex()  # type: ignore[union-attr]
    assert not [row for row in rows if number in row or "PRIVATE KEY" in row]
