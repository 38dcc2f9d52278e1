"""``OPTIONS``: 204 with every method that a path takes, to everybody.

The framework's own answer names the methods of one of the handlers of a path only; its refusal of a method that nobody
uses names them all. So that is what is asked for, and its ``Allow`` is answered. Preflights are no concern of this.
"""

from typing import Final

from litestar.types import ASGIApp, Message, Receive, Scope, Send

_USED_BY_NOBODY: Final = "TRACE"
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

        scope["method"] = _USED_BY_NOBODY  # type: ignore[typeddict-unknown-key]
        await self._app(scope, receive, answer)
