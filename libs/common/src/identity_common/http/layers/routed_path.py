"""The path of a request as the router routes it, so that every layer, guard and edge in Python judges the same path.

The router treats repeated slashes as one and ignores those at the end; it does not resolve dots. Percent-encoded
slashes belong to their segment (RFC 3986 section 2.2): the server decodes a path before routing, which would turn
``/api/users/u%2Froles%2Fr`` into the path of a role. Here it remains the path of a user, which does not exist.
"""

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Scope, Send
from litestar.utils import normalize_path

_ENCODED: Final = re.compile(rb"%2f", re.IGNORECASE)


def routed_path(scope: Mapping[str, Any]) -> str:
    """Return the decoded path of a request, normalised as the router does; encoded slashes remain ``%2F``."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    if b"%2" in raw:
        path = unquote(_ENCODED.sub(b"%252F", raw).decode("ascii"))
    return normalize_path(path)


class RoutedPath:
    """ASGI layer that sets the path of a request to its ``routed_path``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        if scope["type"] == "http":  # type: ignore[comparison-overlap]
            scope["path"] = routed_path(scope)
        return self._app(scope, receive, send)
