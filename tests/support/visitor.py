"""A person at a real browser: what they see, by its words, and what they press."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from playwright.async_api import Page, expect

from stead import IdentityClient
from tests.support.application_site import BACK, ApplicationSite
from tests.support.at_a_browser import PASSWORD, Person


class Visitor:
    """Somebody in front of one tab, with a user name and a password."""

    def __init__(self, page: Page, site: ApplicationSite, person: Person | None = None) -> None:
        self.page = page
        self.site = site
        self.person = person or Person(site.world)

    async def open(self, client: IdentityClient, prompt: str | None = None) -> None:
        """Press "sign in" at the application."""
        await self.page.goto(client.sign_in_url(self.site.redirect_uri, prompt))

    async def sign_in(self, password: str = PASSWORD) -> None:
        """Fill in the sign-in page."""
        await self.page.get_by_label("User name, e-mail or phone").fill(self.person.username)
        await self.page.get_by_label("Password").fill(password)
        await self.press("Sign in")

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).click()

    async def sees(self, heading: str) -> None:
        """Wait until a page with this heading is there."""
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    async def is_back(self) -> dict[str, str]:
        """Wait until the application has the person back; return what came with them."""
        await expect(self.page).to_have_url(re.compile(re.escape(self.site.redirect_uri)))
        await self.sees(BACK)
        return dict(parse_qsl(urlsplit(self.page.url).query))
