"""Hot paths of the Management API: callers see routes like any other."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest
from litestar.types import Message, Receive, Scope, Send

from identity_common.failures import TemporarilyUnavailable
from identity_common.http.json_body import MAX_BODY_BYTES, read_body
from identity_common.http.openapi.declarations import Operation
from identity_common.http.problems import ApiError
from identity_common.http.raw_routes import Posted, posted
from tests.support.captured_logs import captured_logs
from tests.support.retrying import SOON

OPERATION = Operation(method="POST", operation_id="Post", summary="s", description="d", tags=(), status=201)
JSON = [(b"content-type", b"application/json; charset=UTF-8")]


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    size: int


class Made(msgspec.Struct):
    """The body of an answer."""

    size: int


def receiving(*messages: dict[str, Any]) -> Receive:
    """Return a receive callable that yields these messages in turn."""
    left = list(messages)

    async def receive() -> Any:
        return left.pop(0)

    return receive


def body(*parts: bytes) -> Receive:
    """Return a receive callable that yields a body in parts."""
    more = [{"type": "http.request", "body": part, "more_body": True} for part in parts[:-1]]
    return receiving(*more, {"type": "http.request", "body": parts[-1], "more_body": False})


async def make(scope: Scope, receive: Receive) -> Posted:
    return Posted(Made((await read_body(scope, receive, Order)).size))


async def ask(
    answer: Callable[[Scope, Receive], Awaitable[Any]], receive: Receive, method: str = "POST"
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and body of an answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    route: Callable[[Scope, Receive, Send], Awaitable[None]] = posted(
        "/orders", answer, headers={"Cache-Control": "no-store"}, operation=OPERATION
    ).fn
    await route(cast("Scope", {"type": "http", "method": method, "headers": JSON}), receive, send)
    start, content = cast("list[Any]", sent)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, json.loads(content["body"] or b"null")


@pytest.mark.parametrize("parts", [(b'{"size":3}',), (b'{"si', b"", b'ze":3', b"}"), (b"", b'{"size":3}')])
async def test_a_body_is_read_in_any_number_of_parts(parts: tuple[bytes, ...]) -> None:
    headers = {"content-type": "application/json", "cache-control": "no-store", "content-length": "10"}
    assert await ask(make, body(*parts)) == (201, headers, {"size": 3})


async def test_an_oversized_body_is_not_read_to_its_end() -> None:
    mib = b" " * 1024 * 1024
    endless = receiving(*({"type": "http.request", "body": mib, "more_body": True} for _ in range(5)))  # no sixth
    assert len(mib) * 4 == MAX_BODY_BYTES
    status, _, refusal = await ask(make, endless)
    assert (status, refusal["code"]) == (413, "request.too_large")


async def test_a_client_that_disconnects_midway_gets_no_answer() -> None:
    receive = receiving({"type": "http.request", "body": b'{"size":', "more_body": True}, {"type": "http.disconnect"})
    status, _, refusal = await ask(make, receive)
    assert (status, refusal["code"]) == (400, "guard.invalid_input")


async def test_a_refusal_keeps_its_headers_and_an_answer_to_another_method_names_the_right_ones() -> None:
    async def refuse(_: Scope, __: Receive) -> None:
        raise TemporarilyUnavailable

    status, headers, refusal = await ask(refuse, body(b""))
    assert (status, headers["retry-after"] in SOON, refusal["code"]) == (503, True, "temporarily_unavailable")
    assert "cache-control" not in headers
    status, headers, refusal = await ask(make, body(b""), "DELETE")
    assert (status, headers["allow"], refusal["code"]) == (405, "OPTIONS, POST", "request.method_not_allowed")
    assert await ask(make, body(b""), "OPTIONS") == (204, {"allow": "OPTIONS, POST"}, None)


@pytest.mark.parametrize(
    ("error", "status", "code", "event"),
    [
        (ConnectionResetError(), 503, "temporarily_unavailable", "store.unavailable"),
        (LookupError("swordfish"), 500, "server.error", "request.failed"),
        (ApiError(418, "short.and_stout", "m"), 418, "short.and_stout", ""),
    ],
)
async def test_every_error_has_a_code_and_an_unexpected_one_is_logged(
    error: Exception, status: int, code: str, event: str
) -> None:
    async def fail(_: Scope, __: Receive) -> None:
        raise error

    with captured_logs("unit-tests") as log:
        answered, _, refusal = await ask(fail, body(b""))
    assert (answered, refusal["code"]) == (status, code)
    assert "swordfish" not in log.getvalue() + str(refusal)
    assert (event in log.getvalue()) if event else not log.getvalue()
