"""``HEAD`` on every path that supports ``GET``: the same response without a body (RFC 9110 section 9.3.2).

Routes take ``GET`` only; a ``HEAD`` request runs as ``GET``, guards, conditions and errors included. It ends with the
headers: a stream is told that the client has disconnected.
"""

from collections.abc import Awaitable

from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send


class Head:
    """ASGI layer around an app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        if scope["type"] == "http" and scope["method"] == "HEAD":  # type: ignore[comparison-overlap,typeddict-item]
            return self._as_get(scope, receive, send)
        return self._app(scope, receive, send)

    async def _as_get(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_answered = False

        async def send_without_body(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                is_answered = True

        async def receive_until_answered() -> ReceiveMessage:
            return {"type": "http.disconnect"} if is_answered else await receive()

        # A copy: the server reads the method from its own scope to know that no body follows Content-Length.
        as_get: Scope = {**scope, "method": "GET"}  # type: ignore[assignment]
        try:
            await self._app(as_get, receive_until_answered, send_without_body)
        finally:
            scope["path_template"] = as_get.get("path_template", "")
