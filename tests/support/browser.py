"""A real browser in front of the running stack: an application's site, a visitor, and checks of every page."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from playwright.async_api import CDPSession, Locator, Page, ViewportSize, expect

from stead import IdentityClient
from tests.support.at_a_browser import PASSWORD, Person
from tests.support.lengths import length
from tests.support.world import World

ORGANIZATIONS = "urn:service:scope:organizations"
BACK = "Back at the application"
BRANDING = {"logoUri": "https://images.example.com/tidewater.svg", "primaryColor": "#6b1d8c"}
LOGO = """<svg xmlns="http://www.w3.org/2000/svg" width="240" height="64" viewBox="0 0 240 64">
<circle cx="32" cy="32" r="28" fill="#6b1d8c"/>
<path d="M12 36q10-12 20 0t20 0" fill="none" stroke="#fff" stroke-width="5"/>
<text x="72" y="42" font-family="sans-serif" font-size="28" fill="#222">Tidewater</text></svg>"""


class ApplicationSite:
    """A site with two applications, one of ours and one of a partner's, and an API that both use.

    Attributes:
        origin: Its origin.
        redirect_uri: Where visitors come back to.
        goodbye: Where they land after signing out.
        pages: Its pages by path; any other path says that the visitor is back.
        redirects: Its addresses that redirect, and where to.
        onward: A callback that redirects to another origin of the application.
        to_app: A callback that redirects to an application on the device.
        ours: The first-party application.
        partner: The third-party one.
        branded: Another third-party one, with a logo and a colour.
        resource: Indicator of the API; its scopes are ``read:orders`` and ``write:orders``.
        permission: Name of an organization permission.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.pages: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.redirect_uri = f"{self.origin}/callback"
        self.goodbye = f"{self.origin}/goodbye"
        self.onward = f"{self.origin}/onward"
        self.to_app = f"{self.origin}/to-app"
        self.redirects[self.onward] = f"http://localhost:{self._server.server_port}/arrived"
        self.redirects[self.to_app] = "com.example.app:/arrived"
        self.ours = self._application("Order desk")
        self.partner = self._application("Parcel tracker by Kestrel Ltd", is_third_party=True)
        self.branded = self._application("Tidewater Books", is_third_party=True, branding=BRANDING)
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
        """Return a client of one of its applications, for one visitor."""
        return IdentityClient(self.world.stack.base_url, application, scopes=scopes, resources=[self.resource])

    def _application(self, name: str, **changes: Any) -> str:
        chains = [self.onward, self.to_app]
        metadata = {
            "redirectUris": [self.redirect_uri, *chains],
            "postLogoutRedirectUris": [self.goodbye, *chains],
        }
        applications = self.world.management.applications
        return applications.create(name=name, type="SPA", oidc_client_metadata=metadata, **changes).id

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages, site = self.pages, self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                target = site.redirects.get(site.origin + self.path.partition("?")[0])
                if target is not None:
                    self.send_response(302)
                    self.send_header("Location", target)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = pages.get(self.path, f"<!doctype html><title>{BACK}</title><h1>{BACK}</h1>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: URLs contain codes."""

        return Handler


class Visitor:
    """A user with a user name and a password in front of one tab."""

    def __init__(self, page: Page, site: ApplicationSite, person: Person | None = None) -> None:
        self.page = page
        self.site = site
        self.person = person or Person(site.world)

    async def open(self, client: IdentityClient, prompt: str | None = None) -> None:
        """Press "sign in" at the application."""
        await self.page.goto(client.sign_in_url(self.site.redirect_uri, prompt))

    async def finds_the_logo(self) -> None:
        """Serve the logo of ``branded``. Chromium then reports no redirect to a private-use scheme."""
        uri = BRANDING["logoUri"]
        await self.page.route(uri, lambda route: route.fulfill(body=LOGO, content_type="image/svg+xml"))

    async def sign_in(self, password: str = PASSWORD) -> None:
        """Fill in the sign-in page."""
        await self.page.get_by_label("User name, e-mail or phone").fill(self.person.username)
        await self.page.get_by_label("Password").fill(password)
        await self.press("Sign in")

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def sees(self, heading: str) -> None:
        """Wait until a page with this heading is shown."""
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    async def is_back(self) -> dict[str, str]:
        """Wait until the visitor is back at the application; return the parameters of the redirect."""
        await expect(self.page).to_have_url(re.compile(re.escape(self.site.redirect_uri)))
        await self.sees(BACK)
        return dict(parse_qsl(urlsplit(self.page.url).query))


class VirtualAuthenticator:
    """The authenticator of a device, with its user in front of it."""

    def __init__(self, session: CDPSession, identifier: str) -> None:
        self._session = session
        self._id = identifier

    @classmethod
    async def plug_in(cls, page: Page) -> VirtualAuthenticator:
        session = await page.context.new_cdp_session(page)
        await session.send("WebAuthn.enable", {"enableUI": False})
        options = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        added = await session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return cls(session, added["authenticatorId"])

    async def passkeys(self) -> list[dict[str, Any]]:
        found = await self._session.send("WebAuthn.getCredentials", {"authenticatorId": self._id})
        return list(found["credentials"])

    async def unplug(self) -> None:
        await self._session.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": self._id})

    async def answers(self, does_answer: bool) -> None:
        """Let the user touch the device whenever it asks, or never, from now on."""
        parameters = {"authenticatorId": self._id, "enabled": does_answer}
        await self._session.send("WebAuthn.setAutomaticPresenceSimulation", parameters)

    async def verifies(self, is_verified: bool) -> None:
        """Let the user's verification succeed, or fail, from now on."""
        parameters = {"authenticatorId": self._id, "isUserVerified": is_verified}
        await self._session.send("WebAuthn.setUserVerified", parameters)


async def tabbed_to(page: Page, target: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(_MAX_TABS):
        if await target.evaluate("each => each === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"the keyboard does not reach {target}")


_MAX_TABS = 60
PHONE, DESKTOP = ViewportSize(width=320, height=640), ViewportSize(width=1280, height=800)
_LOOKS: list[tuple[ViewportSize, Literal["light", "dark"]]] = [
    (PHONE, "light"),
    (DESKTOP, "dark"),
    (PHONE, "dark"),
    (DESKTOP, "light"),
]
"""Sizes with schemes, the first two of which contain each size and each scheme."""

_PAINTED = """async () => {
  await new Promise(painted => requestAnimationFrame(() => requestAnimationFrame(painted)));
  await Promise.all(document.getAnimations().map(each => each.finished));
}"""


class Inspector:
    """Looks at pages with axe-core, the checker, which is a script."""

    def __init__(self, axe: str) -> None:
        self._axe = axe

    async def inspect(self, page: Page, name: str) -> None:
        """Fail if axe-core finds a violation, or if content overflows the page horizontally.

        The short form looks at a phone in light and a desktop in dark; the long one at all four combinations.
        """
        for size, scheme in _LOOKS[: length(short=2, long=4)]:
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await page.evaluate(_PAINTED)  # contrast is measured when nothing fades any more
            found = await self.violations(page)
            assert not found, f"{name}, {size['width']} px, {scheme}: {found}"
            assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    async def violations(self, page: Page) -> list[tuple[str, str, list[str]]]:
        """Return the violations of all rules: the rule, its message, the elements."""
        if not await page.evaluate("'axe' in window"):  # half a megabyte, once for each document
            await page.evaluate(self._axe)
        options = {"resultTypes": ["violations"], "selectors": False}
        found = await page.evaluate("async options => (await axe.run(options)).violations", options)
        return [(each["id"], each["help"], [node["html"] for node in each["nodes"]]) for each in found]
