"""CORS without credentials: which pages may read which responses (the Fetch standard).

Owns the protocol. Each service decides which paths are open to which origins.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

_ALLOW_HEADERS: Final = b"access-control-allow-headers"
_ALLOWED_HEADERS: Final = (
    b"Authorization, Content-Type, If-Match, If-None-Match, Prefer, Identity-Revision, X-Requested-With, traceparent,"
    b" tracestate"
)
"""The last three are added by libraries for HTTP and tracing, not by the authors of a page."""
_EXPOSED: Final = (b"access-control-expose-headers", b"ETag, Identity-Revision, Retry-After, WWW-Authenticate")
_PREFLIGHT_MAX_AGE_S: Final = b"600"

Headers = list[tuple[bytes, bytes]]
Permission = Callable[[HTTPScope, bytes | None], Headers | None]
"""Returns the headers that let pages of an origin read a response; None if pages have no access to the path."""

ANY_PAGE: Final[Headers] = [(b"access-control-allow-origin", b"*"), _EXPOSED]
"""Pages of all origins may read the response."""

ANY_PAGE_WITH_ANY_HEADER: Final[Headers] = [*ANY_PAGE, (_ALLOW_HEADERS, b"*, Authorization")]
"""As ``ANY_PAGE``, for requests with any header; the wildcard alone does not cover ``Authorization``."""


def page_of(origin: bytes) -> Headers:
    """Return the headers that let pages of one origin read the response."""
    return [(b"access-control-allow-origin", origin), _EXPOSED]


class Cors:
    """ASGI layer around a whole app.

    Args:
        app: The app.
        permission: Decides which pages may read a response.
        methods: Methods that pages may use.
    """

    def __init__(self, app: ASGIApp, permission: Permission, *, methods: bytes) -> None:
        self._app = app
        self._permission = permission
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight request; add the CORS headers to other responses."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        request: HTTPScope = scope  # type: ignore[assignment]
        named = dict(request["headers"])
        origin = named.get(b"origin")
        permission = self._permission(request, origin)
        if permission is None:
            await self._app(scope, receive, send)
            return
        if request["method"] == "OPTIONS" and origin is not None and b"access-control-request-method" in named:
            await self._answer_preflight(send, permission)
            return

        def send_with_permission(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                # Evaluated again: by now the client may have been authenticated.
                headers = self._permission(request, origin) or []
                message["headers"] = [*message.get("headers", []), *headers]
            return send(message)

        await self._app(scope, receive, send_with_permission)

    async def _answer_preflight(self, send: Send, permission: Headers) -> None:
        headers = [
            *permission,
            (b"access-control-allow-methods", self._methods),
            (b"access-control-max-age", _PREFLIGHT_MAX_AGE_S),
        ]
        if _ALLOW_HEADERS not in dict(permission):
            headers.append((_ALLOW_HEADERS, _ALLOWED_HEADERS))
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
