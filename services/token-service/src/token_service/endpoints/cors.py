"""CORS: which web pages may read the responses of token-service.

Metadata: every page with every request header, even where there is no document, so that a page can probe for it. Keys
and userinfo: every page. The token endpoint: pages of registered origins, those of SPA redirect URIs and of
``corsAllowedOrigins``. A preflight does not name the client, so it accepts the origins of every application.
"""

from collections.abc import Callable
from typing import Final

from litestar.types import ASGIApp, HTTPScope

from identity_common.http.layers import cors
from identity_common.http.layers.cors import ANY_PAGE, ANY_PAGE_WITH_ANY_HEADER, Headers, page_of

CLIENT_ID: Final = "cors_client_id"
"""The key, in the state of the ASGI scope, of the client whose request it is."""


class Cors(cors.Cors):
    """ASGI middleware around the whole app.

    Args:
        app: The app.
        metadata_prefixes: Prefixes of paths readable by any page, with any request header.
        public_paths: Paths readable by any page.
        registered_paths: Paths readable by pages of registered origins.
        is_registered: Whether an origin is registered for the client with this id, or for any if there is none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metadata_prefixes: tuple[str, ...],
        public_paths: frozenset[str],
        registered_paths: frozenset[str],
        is_registered: Callable[[str, str | None], bool],
    ) -> None:
        super().__init__(app, self._permission_for, methods=b"GET, POST")
        self._metadata_prefixes = metadata_prefixes
        self._public_paths = public_paths
        self._registered_paths = registered_paths
        self._is_registered = is_registered

    def _permission_for(self, request: HTTPScope, origin: bytes | None) -> Headers | None:
        """Return the headers that let pages of this origin read the response, if they may."""
        if request["path"].startswith(self._metadata_prefixes):
            return ANY_PAGE_WITH_ANY_HEADER
        if request["path"] in self._public_paths:
            return ANY_PAGE
        if request["path"] not in self._registered_paths:
            return None
        client_id = request.get("state", {}).get(CLIENT_ID)
        vary = (b"vary", b"Origin")
        if origin is None or not self._is_registered(origin.decode("latin-1"), client_id):
            return [vary]
        return [*page_of(origin), vary]
