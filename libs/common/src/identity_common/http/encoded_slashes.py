"""Percent-encoded slashes in a path belong to their segment (RFC 3986 section 2.2).

The server decodes a path before routing, which would turn ``/api/users/u%2Froles%2Fr`` into the path of a role. With
this layer it remains the path of a user, which does not exist.
"""

import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from litestar.types import ASGIApp, Receive, Scope, Send

_ENCODED: Final = re.compile(rb"%2f", re.IGNORECASE)


def routed_path(scope: Mapping[str, Any]) -> str:
    """Return the decoded path of a request, except that encoded slashes remain ``%2F``."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or b""
    return unquote(_ENCODED.sub(b"%252F", raw).decode("ascii")) if b"%2" in raw else path


class EncodedSlashes:
    """ASGI layer that sets the path of a request to its ``routed_path``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one ASGI connection."""
        if scope["type"] == "http":  # type: ignore[comparison-overlap]
            scope["path"] = routed_path(scope)
        return self._app(scope, receive, send)
