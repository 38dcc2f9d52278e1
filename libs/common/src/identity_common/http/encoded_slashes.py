"""Percent-encoded slashes in a path: they belong to their segment and separate nothing (RFC 3986 section 2.2).

The server decodes a path before anything is routed, and so would make ``/api/users/u%2Froles%2Fr`` the address of a
role. Here it stays a user's, whose id there is not.
"""

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Scope, Send

_ENCODED: Final = re.compile(rb"%2f", re.IGNORECASE)


def routed_path(scope: Mapping[str, Any]) -> str:
    """Return the path of a request, decoded; a slash that came encoded is still written ``%2F``."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    return unquote(_ENCODED.sub(b"%252F", raw).decode("ascii")) if b"%2" in raw else path


class EncodedSlashes:
    """ASGI layer around an app, which sees the path as ``routed_path`` does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        if scope["type"] == "http":  # type: ignore[comparison-overlap]
            scope["path"] = routed_path(scope)
        return self._app(scope, receive, send)
