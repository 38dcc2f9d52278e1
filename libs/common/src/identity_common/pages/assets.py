"""Files that pages load: styles, scripts and icons, cached by the hash of their content."""

import hashlib
from pathlib import Path
from typing import Final

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

_MAX_AGE_S: Final = 86_400
HEADERS: Final = {"Cache-Control": f"public, max-age={_MAX_AGE_S}", "X-Content-Type-Options": "nosniff"}
"""Headers of the response with a file."""


class Asset(msgspec.Struct, frozen=True):
    """A file of every page.

    Attributes:
        path: From the root of the service.
        media_type: Of the content.
        content: The bytes that are served.
    """

    path: str
    media_type: str
    content: bytes

    @property
    def address(self) -> str:
        """The path with a hash of the content, so that a cached copy is never older than the page."""
        return f"{self.path}?{hashlib.sha256(self.content).hexdigest()[:12]}"


def icon(path: str) -> Asset:
    """Return the mark, as the icon of pages; without one, browsers ask for ``/favicon.ico``."""
    return Asset(path, "image/svg+xml", (Path(__file__).parent / "icon.svg").read_bytes())


def asset_route(asset: Asset) -> HTTPRouteHandler:
    """Return the route that serves a file."""

    @get(asset.path, include_in_schema=False, sync_to_thread=False)
    def file() -> Response[bytes]:
        return Response(asset.content, media_type=asset.media_type, headers=HEADERS)

    return file
