"""The page of a link that confirms an e-mail address."""

from typing import Final

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.wire.account_links import ConfirmAddress, Done, LinkFound, ReadVerification, Refused
from token_service.sign_in.link_pages import LinkPages, language_of, visitor
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.cookies import VERIFICATION
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page

_VERIFICATION: Final = "/sign-in/verification"


class VerificationPages:
    """Confirms e-mail addresses, by a form: a link is opened by programs that scan mails, too.

    Args:
        pages: What the pages of links have in common.
    """

    def __init__(self, pages: LinkPages) -> None:
        self._pages = pages
        self._links = pages.links

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(_VERIFICATION, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            opened = self._pages.opened(browser, _VERIFICATION, VERIFICATION)
            return opened if isinstance(opened, Response) else await self._show(browser, opened)

        @post(_VERIFICATION, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def confirm(request: AnyRequest) -> Response[str]:
            return await self._confirm(self._pages.browser(request))

        return [show, confirm]

    async def _show(self, browser: Browser, link: str | None, *, refused: Refused | None = None) -> Response[str]:
        if link is None:
            return self._pages.not_valid(browser)
        found = await self._links.ask(ReadVerification(link=link), LinkFound)
        if isinstance(found, Refused):
            return self._pages.not_valid(browser)
        way_back = await self._pages.way_back(browser, found.context)
        return page(
            "verification.html",
            language_of(browser, found.context),
            application=way_back.application,
            action=_VERIFICATION,
            link=link,
            account=found.account,
            address=found.address,
            problem=refused.reason if refused else None,
        )

    async def _confirm(self, browser: Browser) -> Response[str]:
        link = (await self._pages.form(browser)).get("link") or ""
        question = ConfirmAddress(link=link, visitor=visitor(browser))
        answer = await self._links.ask(question, Done)
        if isinstance(answer, Refused):
            return await self._show(browser, link, refused=answer)
        way_back = await self._pages.way_back(browser, answer.context)
        shown = page(
            "verified.html",
            language_of(browser, answer.context),
            application=way_back.application,
            sign_in=way_back.sign_in,
        )
        shown.cookies.append(self._pages.cookies.clear(VERIFICATION))
        return shown
