"""``X-Request-Id``: on every answer, in every log line; a caller's own is kept if it is well formed."""

import re
from collections.abc import Iterable
from typing import Final

from litestar.types import ASGIApp, HTTPSendMessage, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars, reset_contextvars

from identity_common.identifiers import new_token_id

HEADER: Final = b"x-request-id"
_WELL_FORMED: Final = re.compile(rb"[A-Za-z0-9-]{1,64}")


class RequestIdMiddleware:
    """ASGI middleware that gives every HTTP request its id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Name the request in the log context and in the answer."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        request_id = _given(scope["headers"]) or new_token_id().encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                start: HTTPSendMessage = message
                start["headers"] = [*start.get("headers", []), (HEADER, request_id)]  # type: ignore[typeddict-unknown-key,misc]
            await send(message)

        before = bind_contextvars(request_id=request_id.decode())
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            reset_contextvars(**before)


def _given(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the caller's own id; empty when there is none, or the first is not well formed."""
    for name, value in headers:
        if name == HEADER:
            return value if _WELL_FORMED.fullmatch(value) else b""
    return b""
