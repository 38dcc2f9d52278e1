"""``HEAD`` on every path that supports ``GET``: the same response without a body (RFC 9110 section 9.3.2).

Routes declare ``GET`` only; a ``HEAD`` request runs as ``GET``, guards, conditions and errors included.
"""

from litestar.types import ASGIApp, Message, Receive, Scope, Send


class Head:
    """ASGI layer around an app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "HEAD":  # type: ignore[comparison-overlap,typeddict-item]
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
            elif not message["more_body"]:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # A copy: the server reads the method from its own scope to know that no body follows Content-Length.
        as_get: Scope = {**scope, "method": "GET"}  # type: ignore[assignment]
        try:
            await self._app(as_get, receive, send_without_body)
        finally:
            scope["path_template"] = as_get.get("path_template", "")
