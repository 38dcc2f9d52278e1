"""The site of an application, for browsers: an origin of its own, and what it asks people for."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from stead import IdentityClient
from tests.support.world import World

ORGANIZATIONS = "urn:service:scope:organizations"
BACK = "Back at the application"


class ApplicationSite:
    """A site with two applications, one of ours and one of a partner's, and an API that both use.

    Attributes:
        origin: Where it answers.
        redirect_uri: Where people come back to.
        goodbye: Where they are after they have signed out.
        pages: What it answers, by path; elsewhere it says that one is back.
        ours: The first-party application.
        partner: The third-party one.
        resource: Indicator of the API; its scopes are ``read:orders`` and ``write:orders``.
        permission: Name of an organization permission.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.pages: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.redirect_uri = f"{self.origin}/callback"
        self.goodbye = f"{self.origin}/goodbye"
        self.ours = self._application("Order desk")
        self.partner = self._application("Parcel tracker by Kestrel Ltd", is_third_party=True)
        self.resource = f"https://orders-{self.ours}.example.com/api"
        orders = world.management.resources.create("Orders", self.resource)
        world.management.resources.create_scope(orders.id, "read:orders", "See your orders and where they are")
        world.management.resources.create_scope(orders.id, "write:orders", "Change and cancel your orders")
        self.permission = f"pay:invoices-{self.ours}"
        world.management.organization_permissions.create(self.permission, "Pay invoices of the organization")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def client(self, application: str, *scopes: str) -> IdentityClient:
        """Return a client of one of its applications, for one person."""
        return IdentityClient(self.world.stack.base_url, application, scopes=scopes, resources=[self.resource])

    def _application(self, name: str, **changes: Any) -> str:
        metadata = {"redirectUris": [self.redirect_uri], "postLogoutRedirectUris": [self.goodbye]}
        applications = self.world.management.applications
        return applications.create(name=name, type="SPA", oidc_client_metadata=metadata, **changes).id

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path, f"<!doctype html><title>{BACK}</title><h1>{BACK}</h1>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing: addresses have codes in them."""

        return Handler
