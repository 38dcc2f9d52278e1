"""Routes of the Management API that are hot paths: plain ASGI, but no different to their callers.

A handler of the framework would double the cost of the request (docs/decisions/0006). Owns what the framework does
around a handler: checks the method, renders the response, and renders every error as the other routes do.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from identity_common.http.openapi.declarations import Operation, operation_opt
from identity_common.http.problems import ApiError, method_not_allowed, refusal_of

_JSON: Final = (b"content-type", b"application/json")
_WITHOUT_BODY: Final = frozenset({204, 304})
_encode: Final = msgspec.json.Encoder().encode

Headers = list[tuple[bytes, bytes]]


class RawAnswer(NamedTuple):
    """The response to one request.

    Attributes:
        status: HTTP status.
        headers: As ASGI sends them, besides those of every response.
        content: The body before it is encoded as JSON; unused by a 204 and a 304, which have none.
    """

    status: int
    headers: Headers
    content: Any = None


Handle = Callable[[Scope, Receive], Awaitable[RawAnswer]]


class Posted(NamedTuple):
    """Response to a ``POST``.

    Attributes:
        content: The body before it is encoded as JSON.
        headers: Besides those of every response and those of every success of the route.
    """

    content: Any
    headers: Mapping[str, str] = {}


def posted(
    path: str,
    answer: Callable[[Scope, Receive], Awaitable[Posted]],
    *,
    headers: Mapping[str, str],
    operation: Operation,
) -> ASGIRouteHandler:
    """Return a route that takes ``POST``.

    Args:
        path: Its whole path; the route is found without the router.
        answer: Returns the response of a success, or raises the error that refuses the request.
        headers: Of its success, besides those of every response.
        operation: As the OpenAPI document describes it; its status is that of a success.
    """
    of_success = raw_headers(headers)

    async def handle(scope: Scope, receive: Receive) -> RawAnswer:
        content, further = await answer(scope, receive)
        return RawAnswer(operation.status, [*of_success, *raw_headers(further)], content)

    return _route(path, handle, method="POST", operation=operation)


def read(path: str, handle: Handle, *, operation: Operation) -> ASGIRouteHandler:
    """Return a route that takes ``GET``.

    Args:
        path: Its whole path, in the router's syntax; the route is found without the router. The values of its
            parameters are in ``scope["path_params"]``.
        handle: Returns the response with its entity tag, 304 included, or raises the error that refuses the request.
        operation: As the OpenAPI document describes it.
    """
    return _route(path, handle, method="GET", operation=operation)


def _route(path: str, handle: Handle, *, method: str, operation: Operation) -> ASGIRouteHandler:
    wrong_method = method_not_allowed(["OPTIONS", method, *(["HEAD"] if method == "GET" else [])])

    @asgi(path, copy_scope=False, opt=operation_opt(operation))
    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        requested: str = scope["method"]  # type: ignore[typeddict-item]
        if requested == "OPTIONS":
            await _send(send, 204, raw_headers(wrong_method.headers))
        elif requested == method:
            await respond(handle, scope, receive, send)
        else:
            await _send_answer(send, _refused(wrong_method))

    return route


async def respond(handle: Handle, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the response that a handler returns, or that to the error that it raises."""
    try:
        answer = await handle(scope, receive)
    except Exception as error:  # noqa: BLE001 - the edge
        answer = _refused(refusal_of(error))
    await _send_answer(send, answer)


async def _send_answer(send: Send, answer: RawAnswer) -> None:
    if answer.status in _WITHOUT_BODY:
        await _send(send, answer.status, answer.headers)
        return
    body = _encode(answer.content)
    headers = [_JSON, *answer.headers, (b"content-length", str(len(body)).encode())]
    await _send(send, answer.status, headers, body)


def _refused(refusal: ApiError) -> RawAnswer:
    return RawAnswer(refusal.status, raw_headers(refusal.headers), refusal.body)


def raw_headers(headers: Mapping[str, str]) -> Headers:
    """Return headers as ASGI sends them."""
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _send(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
