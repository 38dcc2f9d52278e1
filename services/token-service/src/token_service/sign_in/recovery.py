"""Forgotten passwords: the page that has a link mailed, and the page of the link, which sets a new password."""

from typing import Final

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.account_links import (
    Done,
    LinkContext,
    LinkFound,
    LinkRequested,
    Offers,
    ReadOffers,
    ReadRecovery,
    Recover,
    Refused,
    RequestRecovery,
)
from token_service.sign_in.link_pages import LinkPages, language_of, visitor
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.cookies import RECOVERY
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page

FORGOTTEN: Final = "/sign-in/forgotten"
_RECOVERY: Final = "/sign-in/recovery"
_MINUTE_S: Final = 60


class RecoveryPages:
    """Has links mailed, and sets passwords.

    Args:
        pages: What the pages of links have in common.
        limit: Limits requests for links by the address of the browser.
    """

    def __init__(self, pages: LinkPages, limit: SourceLimit) -> None:
        self._pages = pages
        self._links = pages.links
        self._limit = limit

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(FORGOTTEN, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show_forgotten(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            offers = await self._links.ask(ReadOffers(), Offers)
            problem = None if isinstance(offers, Offers) and offers.is_mail_sent else "no-mail"
            return await self._forgotten_page(browser, await self._pages.context(browser), problem=problem)

        @post(FORGOTTEN, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def request_link(request: AnyRequest) -> Response[str]:
            return await self._request_link(self._pages.browser(request))

        @get(_RECOVERY, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            opened = self._pages.opened(browser, _RECOVERY, RECOVERY)
            return opened if isinstance(opened, Response) else await self._show(browser, opened)

        @post(_RECOVERY, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def recover(request: AnyRequest) -> Response[str]:
            return await self._recover(self._pages.browser(request))

        return [show_forgotten, request_link, show, recover]

    async def _request_link(self, browser: Browser) -> Response[str]:
        """Have a link mailed; the answer is the same whether or not the address has an account."""
        form = await self._pages.form(browser)
        address, context = (form.get("address") or "").strip(), await self._pages.context(browser)
        throttled = await self._limit.count(browser.address)
        if throttled is not None:
            return await self._forgotten_page(browser, context, address=address, wait_s=throttled.wait_s)
        question = RequestRecovery(address=address, context=context, visitor=visitor(browser))
        answer = await self._links.ask(question, LinkRequested)
        if isinstance(answer, Refused):
            return await self._forgotten_page(browser, context, address=address, problem=answer.reason)
        way_back = await self._pages.way_back(browser, context)
        return page(
            "forgotten_sent.html",
            browser.language(browser.query()),
            application=way_back.application,
            address=address,
            minutes=answer.minutes,
            sign_in=way_back.sign_in,
        )

    async def _forgotten_page(
        self,
        browser: Browser,
        context: LinkContext,
        *,
        address: str = "",
        problem: str | None = None,
        wait_s: int = 0,
    ) -> Response[str]:
        way_back = await self._pages.way_back(browser, context)
        return page(
            "forgotten.html",
            browser.language(browser.query()),
            application=way_back.application,
            status=429 if wait_s else 200,
            headers={"Retry-After": str(wait_s)} if wait_s else None,
            action=self._pages.action(browser, FORGOTTEN),
            address=address,
            problem="throttled" if wait_s else problem,
            wait_minutes=-(-wait_s // _MINUTE_S),
            sign_in=way_back.sign_in,
        )

    async def _show(self, browser: Browser, link: str | None, *, problem: str | None = None) -> Response[str]:
        """Show the form; this changes nothing."""
        if link is None:
            return self._pages.not_valid(browser, again=FORGOTTEN)
        found = await self._links.ask(ReadRecovery(link=link), LinkFound)
        if isinstance(found, Refused):
            return self._pages.not_valid(browser, again=FORGOTTEN)
        way_back = await self._pages.way_back(browser, found.context)
        return page(
            "recovery.html",
            language_of(browser, found.context),
            application=way_back.application,
            has_script=True,
            action=_RECOVERY,
            link=link,
            account=found.account,
            problem=problem,
        )

    async def _recover(self, browser: Browser) -> Response[str]:
        """Set the password."""
        form = await self._pages.form(browser)
        link, password = form.get("link") or "", form.get("password") or ""
        if password != (form.get("repeated") or ""):
            return await self._show(browser, link, problem="mismatch")
        question = Recover(link=link, password=password, visitor=visitor(browser))
        answer = await self._links.ask(question, Done)
        if isinstance(answer, Refused):
            return await self._show(browser, link, problem=answer.reason)
        way_back = await self._pages.way_back(browser, answer.context)
        shown = page(
            "recovered.html",
            language_of(browser, answer.context),
            application=way_back.application,
            sign_in=way_back.sign_in,
        )
        shown.cookies.append(self._pages.cookies.clear(RECOVERY))
        return shown
