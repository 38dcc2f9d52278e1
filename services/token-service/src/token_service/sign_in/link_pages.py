"""What the pages of links in mails have in common.

The secret of a link reaches no log, no ``Referer`` and no history: a link is opened by a redirect that moves it from
the address to a cookie, which lasts a quarter of an hour; the page has it in its form. Opening a link changes nothing:
programs that scan mails open links too. A form needs no CSRF token, since another site's form cannot know the link.
"""

import re
from typing import Final
from urllib.parse import urlencode

import msgspec
from litestar import Response

from identity_common.pages.cookies import Cookies
from identity_common.wire.account_links import LinkContext, Visitor
from identity_common.wire.events import ApplicationState
from token_service.sign_in.account_links import AccountLinks
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.pages.browser import Browser, redirect
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.pages.problems import AnyRequest, Expired
from token_service.sign_in.pages.views import page
from token_service.sign_in.pending import PendingAuthorizations
from token_service.sign_in.request import Parameters

SIGN_IN: Final = "/sign-in"

_OPENED_S: Final = 900
_LINK: Final = re.compile(r"[0-9A-Za-z]{43}")


class WayBack(msgspec.Struct, frozen=True):
    """Where a page of a link leads.

    Attributes:
        application: The application that it belongs to; None if it is unknown.
        sign_in: Address of the sign-in that waits in this browser; None if there is none.
    """

    application: ApplicationState | None = None
    sign_in: str | None = None


class LinkPages:
    """Opens links, and leads back to the sign-in that they were requested at."""

    def __init__(
        self,
        flow: SignInFlow,
        pending: PendingAuthorizations,
        links: AccountLinks,
        *,
        base_url: str,
        trusted_proxies: int,
    ) -> None:
        self.links = links
        self.cookies = Cookies(secure=base_url.startswith("https:"))
        self._flow = flow
        self._pending = pending
        self._base_url = base_url
        self._trusted_proxies = trusted_proxies

    def browser(self, request: AnyRequest) -> Browser:
        """Return the browser of a request.

        Raises:
            Expired: It is the form of another site.
        """
        if request.method == "POST" and request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise Expired
        return Browser(request, self.cookies, trusted_proxies=self._trusted_proxies)

    async def form(self, browser: Browser) -> Parameters:
        """Return the form that was sent.

        Raises:
            BadRequest: The body is not a form, or cannot be read.
            Expired: It is not a form of our pages: a field is repeated.
        """
        form = await browser.form()
        if form.repeated:
            raise Expired
        return form

    def opened(self, browser: Browser, path: str, cookie: str) -> Response[str] | str | None:
        """Return the redirect that hides the link in the address of a page, or else the link of this browser, if any.

        Args:
            browser: The browser.
            path: Of the page.
            cookie: Name of the cookie.
        """
        link = browser.query().get("link")
        if link is not None and _LINK.fullmatch(link):
            return redirect(f"{self._base_url}{path}", cookies=[self.cookies.set(cookie, link, max_age_s=_OPENED_S)])
        return browser.cookie(cookie)

    async def context(self, browser: Browser) -> LinkContext:
        """Return where a link is requested: at the sign-in that waits in this browser, if the address names one.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        query = browser.query()
        language, request_id = browser.language(query), query.get("request")
        pending = await self._pending.find(request_id, browser_secret=browser.secret)
        if pending is None:  # no other application is believed: the mail will have its name
            return LinkContext(language=language)
        return LinkContext(language=language, application_id=pending.request.client_id, request_id=request_id)

    async def way_back(self, browser: Browser, context: LinkContext) -> WayBack:
        """Return where a page leads whose link is requested, or was requested, in this context.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        application = self._flow.requests.known_application(context.application_id)
        if await self._pending.find(context.request_id, browser_secret=browser.secret) is None:
            return WayBack(application)
        query = {"request": context.request_id, "client_id": context.application_id, "ui_locales": context.language}
        present = {name: value for name, value in query.items() if value}
        return WayBack(application, f"{SIGN_IN}?{urlencode(present)}")

    def action(self, browser: Browser, path: str) -> str:
        """Return the address that a form of a page is sent to, with what the page was told about the sign-in."""
        query = browser.query()
        kept = {name: value for name in ("request", "ui_locales") if (value := query.get(name))}
        return f"{path}?{urlencode(kept)}" if kept else path

    def not_valid(self, browser: Browser, *, again: str | None = None) -> Response[str]:
        """Return the page about a link that is not valid.

        Args:
            browser: The browser.
            again: Path of the page that has another link mailed, if there is one.
        """
        return page("link_not_valid.html", browser.language(browser.query()), status=400, again=again)


def visitor(browser: Browser) -> Visitor:
    """Return a browser as management-service records it."""
    origin = browser.origin
    return Visitor(address=origin.address, user_agent=origin.user_agent)


def language_of(browser: Browser, context: LinkContext) -> str:
    """Return the language of a page of a link: that of the mail."""
    return LANGUAGES.requested(context.language) or browser.language(browser.query())
