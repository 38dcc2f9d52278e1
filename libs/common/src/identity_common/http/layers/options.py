"""``OPTIONS``: 204 with all methods of a path, without authentication.

The framework's own response lists the methods of only one handler of a path, while its 405 lists all of them. So the
request runs with a method that no route has, and the ``Allow`` of the 405 is returned. ``cors`` answers preflights.
"""

from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

_UNUSED_METHOD: Final = "TRACE"
_HEADERS: Final = frozenset({b"content-type", b"content-length"})


class Options:
    """ASGI layer around an app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "OPTIONS":  # type: ignore[comparison-overlap,typeddict-item]
            await self._app(scope, receive, send)
            return
        is_known = False

        async def answer(message: Message) -> None:
            nonlocal is_known
            if message["type"] == "http.response.start" and message["status"] == 405:
                is_known = True
                message["status"] = 204
                message["headers"] = [
                    (name, value) for name, value in message["headers"] if name.lower() not in _HEADERS
                ]
            elif message["type"] == "http.response.body" and is_known:
                message["body"] = b""
            await send(message)

        scope["method"] = _UNUSED_METHOD  # type: ignore[typeddict-unknown-key]
        await self._app(scope, receive, answer)
