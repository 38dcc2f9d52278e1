"""``/api/status``, ``/api/swagger.json`` and ``/api/reference``."""

import functools
import html
from importlib.metadata import distribution
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import urlsplit

import msgspec
from litestar import MediaType, Response, Router, get
from litestar.handlers import HTTPRouteHandler

from identity_common.http.openapi.document import at_address

_HERE: Final = Path(__file__).parent
_SWAGGER_UI: Final = Path(str(distribution("offapi").locate_file("offapi")))  # importing it would load all renderers

_HEADERS: Final = {
    # Swagger UI needs nothing inline; its icons are data: addresses.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "public, max-age=3600",
}


@get(
    "/status",
    operation_id="GetStatus",
    summary="Check that the service is up",
    tags=["Metadata"],
    status_code=204,
    sync_to_thread=False,
)
def status() -> Response[None]:
    """Return 204, without authentication."""
    return Response(None)


def swagger_route(base_url: str, document: Path) -> HTTPRouteHandler:
    """Return the route that serves the OpenAPI document of the three services together, with this address."""

    @functools.cache
    def content() -> bytes:
        return msgspec.json.encode(at_address(msgspec.json.decode(document.read_bytes()), base_url))

    @get(
        "/swagger.json",
        operation_id="GetSwagger",
        summary="Read the OpenAPI document",
        tags=["Metadata"],
        sync_to_thread=False,
    )
    def swagger() -> Response[bytes]:
        """Return the OpenAPI document of all three services, without authentication."""
        return Response(content(), media_type=MediaType.JSON)

    return swagger


def reference_router(base_url: str, *, management_api: str) -> Router:
    """Return the routes of the page and its files; they need no token.

    Args:
        base_url: The public address of the tenant.
        management_api: Resource indicator of the Management API, for which "Authorize" requests tokens.
    """
    values = {"prefix": urlsplit(base_url).path, "resource": management_api}
    page = Template((_HERE / "page.html").read_text()).substitute(
        {name: html.escape(value) for name, value in values.items()}
    )
    return Router(
        "/reference",
        response_headers=_HEADERS,
        route_handlers=[
            _file("/", page.encode(), "text/html"),
            _file("/start.js", (_HERE / "start.js").read_bytes(), "text/javascript"),
            _file("/swagger-ui.js", (_SWAGGER_UI / "swagger_bundle.js").read_bytes(), "text/javascript"),
            _file("/swagger-ui.css", (_SWAGGER_UI / "swagger_style.css").read_bytes(), "text/css"),
        ],
    )


def _file(path: str, content: bytes, media_type: str) -> HTTPRouteHandler:
    @get(path, sync_to_thread=False)
    def file() -> Response[bytes]:
        """Return the file."""
        return Response(content, media_type=media_type)

    return file
