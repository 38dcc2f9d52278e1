"""``HEAD`` on every path whose ``GET`` is safe: the same response without a body (RFC 9110 section 9.3.2).

Routes take ``GET`` only; a ``HEAD`` request runs as ``GET``, guards, conditions and errors included. It ends with the
headers: a stream is told that the client has disconnected.

A ``GET`` that changes state, since a browser is sent to it, is declared with ``UNSAFE_GET``. There ``HEAD`` is not
supported: it must change nothing (section 9.2.1), and what it would have to answer depends on the change.
"""

from collections.abc import Awaitable
from typing import Final

from litestar import Litestar
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from litestar.types import ASGIApp, Message, Receive, ReceiveMessage, Scope, Send
from litestar.utils.path import normalize_path

_UNSAFE: Final = "is_unsafe_get"
UNSAFE_GET: Final = {_UNSAFE: True}
"""The ``opt`` of a route."""


def supports_head(app: Litestar, path: str) -> bool:
    """Return whether ``HEAD`` runs as ``GET``; true for a path that has none, whose error is the same."""
    try:
        _, handler, *_ = app.asgi_router.handle_routing(path=normalize_path(path), method="GET")
    except (MethodNotAllowedException, NotFoundException, KeyError):  # the last for an ASGI route with parameters
        return True
    return _UNSAFE not in handler.opt


class Head:
    """ASGI layer around an app.

    Args:
        app: What handles the request.
        router: Knows the routes.
    """

    def __init__(self, app: ASGIApp, router: Litestar) -> None:
        self._app = app
        self._router = router

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        if scope["type"] == "http" and scope["method"] == "HEAD":  # type: ignore[comparison-overlap,typeddict-item]
            return self._without_body(scope, receive, send)
        return self._app(scope, receive, send)

    async def _without_body(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        handled: Scope = {**scope}  # type: ignore[assignment]
        if supports_head(self._router, scope["path"]):
            handled["method"] = "GET"  # type: ignore[typeddict-unknown-key]
        try:
            await self._app(handled, receive_until_answered, send_without_body)
        finally:
            scope["path_template"] = handled.get("path_template", "")
