"""Conditional GETs (RFC 9110 sections 8.8.3 and 13.1.2), without a framework."""

import asyncio
from typing import Any

import pytest

from identity_common.entity_tags import is_known
from identity_common.http.layers.conditional_get import ConditionalGet, entity_tag

JSON = [(b"content-type", b"application/json"), (b"content-length", b"4")]


@pytest.mark.parametrize(
    "condition",
    [b'"a"', b'W/"a"', b'"b", "a"', b'"b","a"', b'"b" ,\tW/"a" , "c"', b"*", b" * ", b', "a"', b'"a",'],
)
def test_a_condition_names_an_entity_tag_whether_weak_or_strong(condition: bytes) -> None:
    assert is_known(b'"a"', condition)
    assert is_known(b'W/"a"', condition)


@pytest.mark.parametrize(
    "condition", [b"", b'"b"', b'"A"', b"a", b'"a', b'w/"a"', b'"*"', b'*, "a"', b'"a" "b"', b'"b, "a""', b'""']
)
def test_a_condition_that_names_another_or_is_ill_formed_names_nothing(condition: bytes) -> None:
    assert not is_known(b'"a"', condition)


def test_an_ill_formed_condition_is_parsed_in_linear_time() -> None:
    assert not is_known(b'"a"', b'"b", ' * 10_000 + b"x")
    assert not is_known(b'"a"', b"\t," * 10_000 + b"x")


def test_an_entity_tag_tells_bodies_and_pages_apart() -> None:
    tags = {
        entity_tag(b"[]", JSON),
        entity_tag(b"[1]", JSON),
        entity_tag(b"[]", [*JSON, (b"Total-Number", b"1")]),
        entity_tag(b"[]", [*JSON, (b"Total-Number", b"2")]),
        entity_tag(b"[]", [*JSON, (b"Link", b"<x>")]),
    }
    assert len(tags) == 5
    of_other_size = [*JSON, (b"Total-Number", b"2"), (b"Link", b"<x>")]
    assert entity_tag(b"[]", of_other_size) in tags
    assert entity_tag(b"[]", [*JSON, (b"x-request-id", b"1")]) == entity_tag(b"[]", JSON)


def answered(
    *, method: str = "GET", condition: bytes | None = None, status: int = 200, headers: Any = JSON
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return status, headers and body of what an app behind the layer answers in two parts."""
    sent: list[Any] = []

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": b"[1", "more_body": True})
        await send({"type": "http.response.body", "body": b"2]", "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message)

    given = [] if condition is None else [(b"if-none-match", condition)]
    scope: Any = {"type": "http", "method": method, "headers": given}
    asyncio.run(ConditionalGet(app)(scope, None, send))  # type: ignore[arg-type]
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message["body"] for message in sent[1:])


def test_a_json_answer_has_an_entity_tag_and_no_body_for_a_caller_that_has_it() -> None:
    status, headers, body = answered()
    assert (status, body) == (200, b"[12]")
    status, again, body = answered(condition=headers[b"etag"])
    assert (status, again, body) == (304, {b"etag": headers[b"etag"]}, b"")
    assert answered(condition=b'"other"') == (200, headers, b"[12]")


def test_a_handler_s_own_entity_tag_counts() -> None:
    own = [*JSON, (b"etag", b'W/"7"'), (b"cache-control", b"max-age=9")]
    assert answered(headers=own) == (200, dict(own), b"[12]")
    assert answered(headers=own, condition=b'"7"') == (304, dict(own[2:]), b"")


def test_anything_but_a_json_answer_to_a_get_passes_unchanged() -> None:
    for arguments in (
        {"method": "POST"},
        {"status": 404},
        {"status": 201},
        {"headers": [(b"content-type", b"text/plain")]},
        {"headers": []},
    ):
        headers = dict(arguments.get("headers", JSON))
        assert answered(condition=b"*", **arguments) == (arguments.get("status", 200), headers, b"[12]")  # type: ignore[arg-type]
