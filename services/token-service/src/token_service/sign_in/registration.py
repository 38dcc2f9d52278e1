"""Registration: the page that has a link mailed, and the page of the link, which creates the account and signs in."""

from typing import Final

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.clock import now_ms
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.account_links import (
    LinkContext,
    LinkFound,
    LinkRequested,
    Offers,
    ReadOffers,
    ReadRegistration,
    Refused,
    Register,
    Registered,
    RequestRegistration,
)
from token_service.sign_in.attempts import SignInRefused
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.link_pages import LinkPages, WayBack, language_of, visitor
from token_service.sign_in.pages.browser import Browser, redirect
from token_service.sign_in.pages.cookies import REGISTRATION, of_sign_in
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.sign_ins import SignIns

REGISTER: Final = "/sign-in/register"
_REGISTRATION: Final = "/sign-in/registration"
_MINUTE_S: Final = 60


class RegistrationPages:
    """Has links mailed, and creates accounts.

    Args:
        pages: What the pages of links have in common.
        limit: Limits requests for links by the address of the browser.
        flow: Knows whether people may register.
        sign_ins: Begins the session of a new account.
    """

    def __init__(self, pages: LinkPages, limit: SourceLimit, flow: SignInFlow, sign_ins: SignIns) -> None:
        self._pages = pages
        self._links = pages.links
        self._limit = limit
        self._flow = flow
        self._sign_ins = sign_ins

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(REGISTER, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show_register(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            context = await self._pages.context(browser)
            return await self._register_page(browser, context, is_offered=await self._is_offered())

        @post(REGISTER, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def request_link(request: AnyRequest) -> Response[str]:
            return await self._request_link(self._pages.browser(request))

        @get(_REGISTRATION, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show(request: AnyRequest) -> Response[str]:
            browser = self._pages.browser(request)
            opened = self._pages.opened(browser, _REGISTRATION, REGISTRATION)
            return opened if isinstance(opened, Response) else await self._show(browser, opened)

        @post(_REGISTRATION, include_in_schema=False, exception_handlers=PROBLEMS, status_code=200)
        async def register(request: AnyRequest) -> Response[str]:
            return await self._register(self._pages.browser(request))

        return [show_register, request_link, show, register]

    async def _is_offered(self) -> bool:
        if not self._flow.offers_registration:
            return False
        offers = await self._links.ask(ReadOffers(), Offers)
        return isinstance(offers, Offers) and offers.is_mail_sent

    async def _request_link(self, browser: Browser) -> Response[str]:
        """Have a link mailed; the answer is the same whether or not the address has an account or may register."""
        form = await self._pages.form(browser)
        address, context = (form.get("address") or "").strip(), await self._pages.context(browser)
        if not self._flow.offers_registration:
            return await self._register_page(browser, context, is_offered=False)
        throttled = await self._limit.count(browser.address)
        if throttled is not None:
            return await self._register_page(browser, context, address=address, wait_s=throttled.wait_s)
        question = RequestRegistration(address=address, context=context, visitor=visitor(browser))
        answer = await self._links.ask(question, LinkRequested)
        if isinstance(answer, Refused):
            is_offered = answer.reason != "no-mail"
            return await self._register_page(
                browser, context, is_offered=is_offered, address=address, problem=answer.reason
            )
        way_back = await self._pages.way_back(browser, context)
        return page(
            "register_sent.html",
            browser.language(browser.query()),
            application=way_back.application,
            address=address,
            sign_in=way_back.sign_in,
        )

    async def _register_page(
        self,
        browser: Browser,
        context: LinkContext,
        *,
        is_offered: bool = True,
        address: str = "",
        problem: str | None = None,
        wait_s: int = 0,
    ) -> Response[str]:
        way_back = await self._pages.way_back(browser, context)
        return page(
            "register.html",
            browser.language(browser.query()),
            application=way_back.application,
            status=429 if wait_s else 200,
            headers={"Retry-After": str(wait_s)} if wait_s else None,
            action=self._pages.action(browser, REGISTER),
            is_offered=is_offered,
            address=address,
            problem="throttled" if wait_s else problem,
            wait_minutes=-(-wait_s // _MINUTE_S),
            sign_in=way_back.sign_in,
        )

    async def _show(
        self, browser: Browser, link: str | None, *, name: str = "", problem: str | None = None
    ) -> Response[str]:
        """Show the form; this changes nothing."""
        if link is None:
            return self._pages.not_valid(browser, again=REGISTER)
        found = await self._links.ask(ReadRegistration(link=link), LinkFound)
        if isinstance(found, Refused):
            return self._pages.not_valid(browser, again=REGISTER)
        way_back = await self._pages.way_back(browser, found.context)
        return page(
            "registration.html",
            language_of(browser, found.context),
            application=way_back.application,
            leads_elsewhere=way_back.sign_in is not None,
            has_script=True,
            action=_REGISTRATION,
            link=link,
            address=found.address,
            name=name,
            problem=problem,
        )

    async def _register(self, browser: Browser) -> Response[str]:
        """Create the account."""
        form = await self._pages.form(browser)
        link, name, password = (form.get(field) or "" for field in ("link", "name", "password"))
        if password != (form.get("repeated") or ""):
            return await self._show(browser, link, name=name, problem="mismatch")
        question = Register(link=link, name=name, password=password, visitor=visitor(browser))
        judged_at = now_ms()
        answer = await self._links.ask(question, Registered)
        if isinstance(answer, Refused):
            return await self._show(browser, link, name=name, problem=answer.reason)
        way_back = await self._pages.way_back(browser, answer.context)
        done = await self._signed_in(browser, answer, way_back, judged_at=judged_at) or page(
            "registered.html",
            language_of(browser, answer.context),
            application=way_back.application,
            sign_in=way_back.sign_in,
        )
        done.cookies.append(self._pages.cookies.clear(REGISTRATION))
        return done

    async def _signed_in(
        self, browser: Browser, registered: Registered, way_back: WayBack, *, judged_at: int
    ) -> Response[str] | None:
        """Sign in and go on, if a sign-in waits in this browser; else None: elsewhere, a link alone is no sign-in."""
        if way_back.sign_in is None:
            return None
        try:
            begun = await self._sign_ins.begin(
                registered.user_id,
                judged_at=judged_at,
                tokens_valid_after=0,  # the account is new
                revision=registered.revision,
                origin=browser.origin,
                session_cookie=browser.session_cookie,
                device_cookie=browser.device_cookie,
                client_id=registered.context.application_id or "",
            )
        except SignInRefused:
            return None
        return redirect(way_back.sign_in, cookies=of_sign_in(begun, self._pages.cookies))
