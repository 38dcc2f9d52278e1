"""Routes of the Management API that are hot paths: plain ASGI, and to their callers a route like any other.

A framework's handler would cost as much again as the whole request (docs/decisions/0006). Owns what the framework does
around a handler: the method, the answer, and that whatever goes wrong is rendered as everywhere else.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from identity_common.http.api_errors import ApiError, method_not_allowed, refusal_of
from identity_common.http.openapi import Operation, operation_opt

_WRONG_METHOD: Final = method_not_allowed(["OPTIONS", "POST"])
_JSON: Final = {"Content-Type": "application/json"}
_encode: Final = msgspec.json.Encoder().encode


def posted(
    path: str,
    answer: Callable[[Scope, Receive], Awaitable[Any]],
    *,
    headers: Mapping[str, str],
    operation: Operation,
) -> ASGIRouteHandler:
    """Return a route that takes ``POST``.

    Args:
        path: The whole of it; it is found without the router.
        answer: Returns what is to be encoded, or raises what the API refuses with.
        headers: Of its success, besides those of every answer.
        operation: As the OpenAPI document describes it; its status is that of a success.
    """

    @asgi(path, copy_scope=False, opt=operation_opt(operation))
    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]  # type: ignore[typeddict-item]
        if method == "OPTIONS":
            await _send(send, 204, _WRONG_METHOD.headers, b"")
            return
        if method != "POST":
            await _refuse(send, _WRONG_METHOD)
            return
        try:
            answered = await answer(scope, receive)
        except Exception as error:  # noqa: BLE001 - the edge
            await _refuse(send, refusal_of(error))
        else:
            await _send(send, operation.status, {**_JSON, **headers}, _encode(answered))

    return route


async def _refuse(send: Send, refusal: ApiError) -> None:
    await _send(send, refusal.status, {**_JSON, **refusal.headers}, _encode(refusal.body))


async def _send(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if body:
        encoded.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})
