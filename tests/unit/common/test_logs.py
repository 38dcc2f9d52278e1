"""Logs: which parts of an event are written, and what is never written whatever the call."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from identity_common.identifiers import new_id, new_secret, new_short_id, new_token_id
from identity_common.telemetry.logs import FIELDS, REDACTED, REQUEST_ID, get_logger, redact
from tests.support.captured_logs import captured_logs

JWT = "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCJ9.eyJzdWIiOiJ1c2VyIn0.c2lnbmF0dXJlLXdpdGgtXy1hbmQtLQ"
SUBJECT_TOKEN = "sub_" + "Ab1" * 14 + "x"
CLIENT_SECRET = "Zz9" * 14 + "k"


class Log:
    """What a test wrote, line by line; a system that runs in the same process writes with the names of its modules."""

    def __init__(self, stream: io.StringIO) -> None:
        self.stream = stream

    @property
    def lines(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["logger"] not in sys.modules]

    @property
    def line(self) -> dict[str, Any]:
        (line,) = self.lines
        assert line.pop("timestamp").endswith("Z")
        return line


@pytest.fixture
def log() -> Iterator[Log]:
    with captured_logs("unit-tests") as stream:
        yield Log(stream)


def test_an_event_is_one_json_object_a_line(log: Log) -> None:
    get_logger("token_service.x").info("subject-token.refused", reason="expired", subject_token_id="abc", count=3)

    assert log.line == {
        "event": "subject-token.refused",
        "level": "info",
        "logger": "token_service.x",
        "service": "unit-tests",
        "reason": "expired",
        "subject_token_id": "abc",
        "count": 3,
    }


def test_a_field_that_is_not_on_the_list_is_dropped_and_its_name_reported(log: Log) -> None:
    """A new field has to be allowed before it is written."""
    get_logger("x").warning("e", password="hunter2", client_secret="hunter2", user_id="u1", body={"a": "hunter2"})

    assert log.line == {
        "event": "e",
        "level": "warning",
        "logger": "x",
        "service": "unit-tests",
        "user_id": "u1",
        "message": "fields dropped: body, client_secret, password",
    }


def test_a_dropped_field_leaves_the_message_of_its_line(log: Log) -> None:
    get_logger("x").warning("e", message="cannot connect", password="hunter2")

    assert log.line["message"] == "cannot connect; fields dropped: password"


def test_bound_fields_go_the_same_way_and_the_request_is_named(log: Log) -> None:
    before = REQUEST_ID.set("r1")
    get_logger("x").bind(subject_token="hunter2", client_id="c1", authorization="Bearer hunter2").info("e")
    REQUEST_ID.reset(before)

    assert log.line == {
        "event": "e",
        "level": "info",
        "logger": "x",
        "service": "unit-tests",
        "request_id": "r1",
        "client_id": "c1",
        "message": "fields dropped: authorization, subject_token",
    }


SECRETS = {
    "a JWT": JWT,
    "a JWT without signature": JWT.rpartition(".")[0] + ".",
    "the beginning of a JWT": JWT.rpartition(".")[0],
    "a subject token": SUBJECT_TOKEN,
    "a client secret": CLIENT_SECRET,
    "a password hash": "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("around", ["{}", "it is {}.", '{{"token":"{}"}}', "Bearer {}", "x={}&y=1", "({})", "{}\n{}"])
def test_text_that_looks_like_a_secret_is_replaced_everywhere(log: Log, secret: str, around: str) -> None:
    """In the event's name, in a field that is allowed, in a list, in an argument of the message."""
    text = around.format(secret, secret)
    logger = get_logger("x")
    logger.info(text)
    logger.info("e", reason=text)
    logger.info("e", reason=[{"deep": text}])
    logger.info("e %s", text)
    logging.getLogger("library").warning("it says %s", text)
    logging.getLogger("library").warning(text)

    assert len(log.lines) == 6
    written = log.stream.getvalue()
    assert secret not in written
    assert written.count(REDACTED) >= 6
    for part in secret.split("."):
        assert len(part) < 12 or part not in written


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://token:p4ss-_w0rd@127.0.0.1:5432/token",
        "redis://default:p4ss-_w0rd@localhost:6379/0",
        "nats://token:p4ss-_w0rd@nats:4222",
        "https://user:p4ss-_w0rd@example.com/path?x=1",
    ],
)
def test_a_connection_string_loses_its_user_and_password(log: Log, url: str) -> None:
    """CVE-2023-46255, CVE-2024-32967."""
    get_logger("x").error("e", address=url, reason=f"could not connect to {url}: refused")

    line = log.line
    assert "p4ss-_w0rd" not in json.dumps(line)
    assert line["address"] == url.partition("://")[0] + "://" + REDACTED + url.partition("@")[2]


def test_ids_are_not_taken_for_secrets() -> None:
    """A log without ids would be useless."""
    for text in (
        new_id(),
        new_short_id(),
        new_token_id(),
        "https://api.example.com/v1",
        "management:97",
        "read:orders",
    ):
        assert redact(text) == text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(before=st.text(max_size=20), after=st.text(max_size=20))
def test_every_secret_we_make_is_recognized_among_other_words(before: str, after: str) -> None:
    """Whatever surrounds it, separated by a space."""
    for secret in (new_secret(), f"sub_{new_secret()}", JWT):
        assert secret not in redact(f"{before} {secret} {after}")


class HiddenError(Exception):
    """Its message holds a secret that must not be written."""


def fail_deeper() -> None:
    local = "local-hunter2"
    raise HiddenError(f"cause-hunter2 {local}")


def fail() -> None:
    try:
        fail_deeper()
    except HiddenError as cause:
        raise RuntimeError("message-hunter2") from cause


class TestExceptions:
    def test_frames_and_types_are_written_and_no_message(self, log: Log) -> None:
        """Neither the exception's text nor its cause's nor a local value."""
        try:
            fail()
        except RuntimeError as error:
            get_logger("x").error("request.failed", error=type(error).__name__, exc_info=error)

        line = log.line
        traceback = line.pop("traceback")
        assert line == {
            "event": "request.failed",
            "error": "RuntimeError",
            "level": "error",
            "logger": "x",
            "service": "unit-tests",
        }
        assert "in fail" in traceback
        assert traceback.endswith("RuntimeError < HiddenError < HiddenError")
        assert "hunter2" not in traceback.replace('raise RuntimeError("message-hunter2") from cause', "")

    @pytest.mark.parametrize("library", [False, True])
    def test_exc_info_true_is_the_current_exception(self, log: Log, library: bool) -> None:
        """Also from a library, through the standard library's logging."""
        try:
            fail()
        except RuntimeError:
            if library:
                logging.getLogger("library").exception("it broke")
            else:
                get_logger("x").exception("it broke")

        line = log.line
        assert line["event"] == "it broke"
        assert "in fail" in line["traceback"]
        assert "RuntimeError" in line["traceback"]
        assert "cause-hunter2" not in json.dumps(line)

    def test_a_source_line_of_the_traceback_is_searched_like_everything_else(self, log: Log) -> None:
        """Source code is quoted in a traceback; a secret that stands there is replaced."""
        namespace: dict[str, Any] = {}
        source = f"def broken():\n    raise ValueError('{CLIENT_SECRET}')\n"
        exec(compile(source, "broken.py", "exec"), namespace)
        try:
            namespace["broken"]()
        except ValueError as error:
            get_logger("x").error("e", exc_info=error)

        assert CLIENT_SECRET not in log.stream.getvalue()


def test_no_allowed_field_is_meant_for_the_values_of_requests() -> None:
    """No field whose purpose is to carry a token, a secret, a body or a person."""
    forbidden = {
        "token", "subject_token", "actor_token", "access_token", "secret", "client_secret", "password", "authorization",
        "body", "form", "headers", "email", "username", "name", "url", "database_url", "redis_url", "nats_url",
    }  # fmt: skip

    assert not FIELDS & forbidden


def test_levels_below_info_are_not_written(log: Log) -> None:
    get_logger("x").debug("e")
    logging.getLogger("library").debug("e")
    logging.getLogger("httpx2").info("HTTP Request: POST https://id.example.com/oidc/token")

    assert log.lines == []


def test_a_random_password_in_a_connection_string_is_replaced() -> None:
    """With any letters of base64url."""
    for _ in range(256):
        password = secrets.token_urlsafe(24)
        assert password not in redact(f"nats://token:{password}@127.0.0.1:4222")
        key = base64.b64encode(os.urandom(32)).decode()
        assert redact(f"redis://:{key.replace('/', '%2F')}@localhost") == f"redis://{REDACTED}localhost"
