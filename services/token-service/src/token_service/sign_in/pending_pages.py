"""What the pages of a pending authorization request have in common.

A form is accepted from the browser that sent the request, and from our own page only. The response leads to the page
that the flow's next step needs, or back to the client.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from litestar import Response, post
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler

from identity_common.clock import Clock, now_ms
from identity_common.failures import NotYetThere, TemporarilyUnavailable
from identity_common.identifiers import new_secret
from identity_common.pages.cookies import Cookies
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.events import ApplicationState
from identity_common.wire.factors import Refused
from token_service.grants.failures import oauth_error_of
from token_service.sign_in.attempts import SignInRefused
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.pages.browser import Browser, is_from_page, redirect
from token_service.sign_in.pages.cookies import BROWSER
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest, Expired
from token_service.sign_in.pending import Pending, PendingAuthorizations, weight_of
from token_service.sign_in.redirect_uris import with_parameters
from token_service.sign_in.request import AuthorizationRequest, BadRequest, Parameters, Refusal
from token_service.sign_in.steps import (
    Granted,
    NeedsAccount,
    NeedsAction,
    NeedsConsent,
    NeedsEnrolment,
    NeedsFactor,
    NeedsLink,
    NeedsMore,
    NeedsSignIn,
    NextStep,
    SignedIn,
)

SIGN_IN: Final = "/sign-in"
CANCEL: Final = "/sign-in/cancel"
ACCOUNT: Final = "/sign-in/account"
CONSENT: Final = "/consent"
SWITCH: Final = "/consent/switch"
FACTOR: Final = "/sign-in/factor"
SET_UP: Final = "/sign-in/set-up"
CONNECT: Final = "/sign-in/connect"
_PATHS: Final[dict[type[NextStep], str]] = {
    NeedsSignIn: SIGN_IN,
    NeedsAccount: ACCOUNT,
    NeedsFactor: FACTOR,
    NeedsEnrolment: SET_UP,
    NeedsAction: SET_UP,
    NeedsLink: CONNECT,
    NeedsConsent: CONSENT,
}

_MINUTE_S: Final = 60

Answer = Response[str] | Response[None]

S = TypeVar("S", bound=NextStep)

FactorPage = Callable[[Browser, str, Pending, NeedsFactor], Awaitable[Answer]]
"""Shows the page that asks for a factor of a user who has signed in for a pending request."""


class PageForm(msgspec.Struct, frozen=True):
    """What the forms of a page have in common.

    Attributes:
        request_id: Of the pending request.
        csrf_token: Of the pending request.
        cancel_action: Where a form is sent that cancels the request.
        switch_action: Where a form is sent that asks for another user; None if the request accepts one only.
    """

    request_id: str
    csrf_token: str
    cancel_action: str
    switch_action: str | None

    def __repr__(self) -> str:
        """Hide the secrets."""
        return "PageForm(…)"


class PendingPages:
    """Finds the request of a page, and continues it.

    Args:
        flow: Decides the next step.
        pending: Stores requests between pages.
        waiting: Limits how many pending requests an address may have.
        base_url: The base of links.
        issuer: Sent with every authorization response (RFC 9207).
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        flow: SignInFlow,
        pending: PendingAuthorizations,
        waiting: SourceLimit,
        *,
        base_url: str,
        issuer: str,
        trusted_proxies: int,
        clock: Clock = now_ms,
    ) -> None:
        self.pending = pending
        self.cookies = Cookies(secure=base_url.startswith("https:"))
        self._flow = flow
        self._waiting = waiting
        self._base_url = base_url
        self._issuer = issuer
        self._trusted_proxies = trusted_proxies
        self._clock = clock

    def browser(self, request: AnyRequest) -> Browser:
        """Return the browser of a request."""
        return Browser(request, self.cookies, trusted_proxies=self._trusted_proxies)

    def form_route(self, path: str, handle: Callable[[Browser, Parameters], Awaitable[Answer]]) -> HTTPRouteHandler:
        """Return the route that handles a form of our pages."""

        @post(path, include_in_schema=False, exception_handlers=PROBLEMS)
        async def posted(request: AnyRequest) -> Answer:
            browser = self.browser(request)
            return await handle(browser, await browser.form())

        return posted

    async def find(self, browser: Browser, pending_id: str | None) -> Pending:
        """Return a pending request of this browser.

        Raises:
            Expired: It is unknown, expired or of another browser.
        """
        pending = await self.pending.find(pending_id, browser_secret=browser.secret)
        if pending is None:
            raise self.expired(browser)
        return pending

    async def posted(self, browser: Browser, form: Parameters) -> tuple[str, Pending]:
        """Return the pending request of a form that this browser sent from our page.

        Raises:
            Expired: As ``find``, or the form is not from our page.
        """
        pending_id = form.get("request") or ""
        pending = await self.find(browser, pending_id)
        if form.repeated or not is_from_page(form, pending.csrf_token):
            raise self.expired(browser)
        return pending_id, pending

    async def application(self, pending: Pending) -> ApplicationState:
        """Return the client of a pending request.

        Raises:
            BadRequest: It was deleted.
        """
        application = await self._flow.requests.application(pending.request.client_id)
        if application is None:
            raise BadRequest("the application was deleted")
        return application

    async def require_place(self, browser: Browser, request: AuthorizationRequest) -> None:
        """Count a request that is about to be stored; refuse it beyond the limit of its address.

        The client gets ``temporarily_unavailable`` (RFC 6749 section 4.1.2.1).
        """
        if await self._waiting.count(browser.address, weight=weight_of(request)) is not None:
            raise Refusal("temporarily_unavailable", "too many requests from this address are waiting for a sign-in")

    async def take(self, browser: Browser, pending_id: str, pending: Pending) -> None:
        """Delete a pending request: it is being answered.

        Raises:
            Expired: It was answered already.
        """
        if not await self.pending.take(pending_id):
            raise self.expired(browser)
        await self.forgive(browser, pending)

    async def forgive(self, browser: Browser, pending: Pending) -> None:
        """No longer count a request that is not stored any more."""
        await self._waiting.forgive(browser.address, weight=pending.weight)

    def expired(self, browser: Browser) -> Expired:
        """Return the error for a page whose request is gone; only the page's address still names the application."""
        return Expired(self._flow.requests.known_application(browser.query().get("client_id")))

    async def begin(
        self, browser: Browser, request: AuthorizationRequest, step: NextStep, language: str | None
    ) -> Answer:
        """Send the code, or store the request for this browser and redirect to the first page."""
        if isinstance(step, Granted):
            return self._grant(request, step)
        pending_id, cookies = await self.keep(browser, request, is_signed_in=isinstance(step, NeedsMore | NeedsConsent))
        return redirect(self.first(_PATHS[type(step)], pending_id, request, language), cookies=cookies)

    async def keep(
        self, browser: Browser, request: AuthorizationRequest, *, is_signed_in: bool = False
    ) -> tuple[str, list[Cookie]]:
        """Store a request for this browser; return its id, and the cookie of a new browser."""
        secret = browser.secret or new_secret()
        cookies = [] if browser.secret else [self.cookies.set(BROWSER, secret)]
        now = self._clock()
        return await self.pending.keep(request, browser_secret=secret, now=now, is_signed_in=is_signed_in), cookies

    async def resume(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        who: SignedIn | None,
        *,
        cookies: list[Cookie] | None = None,
        factor_page: FactorPage | None = None,
    ) -> Answer:
        """Send the code, or redirect to the next page.

        Args:
            browser: The browser.
            pending_id: The request's id.
            pending: The request.
            who: The user.
            cookies: To set.
            factor_page: Answers at once if a factor is missing, which saves the browser and the services a request.
        """
        try:
            step = await self._flow.resume(pending, who)
        except Refusal as refusal:
            return await self.refuse_pending(browser, pending_id, pending, refusal, cookies=cookies)
        if isinstance(step, NeedsFactor) and factor_page is not None:
            try:
                prolonged = self.pending.prolong(pending_id)
                shown = await factor_page(browser, pending_id, pending, step)
                await prolonged
            except TemporarilyUnavailable:  # the redirect can be repeated; the form would sign in once more
                return await self._lead(browser, pending_id, pending, step, cookies=cookies)
            shown.cookies.extend(cookies or [])
            return shown
        return await self._lead(browser, pending_id, pending, step, cookies=cookies)

    async def needed(
        self, browser: Browser, pending_id: str, pending: Pending, kinds: tuple[type[S], ...]
    ) -> S | Answer:
        """Return the step that a request needs, if it is of these kinds; else the response that leads there."""
        who = await self._flow.signed_in(browser.session_cookie)
        try:
            step = await self._flow.resume(pending, who)
        except Refusal as refusal:
            return await self.refuse_pending(browser, pending_id, pending, refusal)
        return step if isinstance(step, kinds) else await self._lead(browser, pending_id, pending, step)

    async def _lead(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        step: NextStep,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        if isinstance(step, Granted):
            return await self.finish(browser, pending_id, pending, step, cookies=cookies)
        if isinstance(step, NeedsMore | NeedsConsent):
            await self.pending.prolong(pending_id)
        return redirect(self.next(browser, step, pending_id), cookies=cookies or [])

    async def finish(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        granted: Granted,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        """Send the code."""
        await self.take(browser, pending_id, pending)
        return self._grant(pending.request, granted, cookies=cookies)

    async def deny(self, browser: Browser, form: Parameters) -> Answer:
        """Answer a form that cancels the request."""
        pending_id, pending = await self.posted(browser, form)
        await self.take(browser, pending_id, pending)
        request = pending.request
        return self.refuse(request.redirect_uri, request.state, "access_denied", "the user denied the request")

    async def or_refuse(self, answer: Awaitable[Answer], redirect_uri: str, state: str | None) -> Answer:
        """Return the answer; an error goes to the client."""
        try:
            return await answer
        except Refusal as refusal:
            return self.refuse(redirect_uri, state, refusal.error, refusal.description)
        except (NotYetThere, TemporarilyUnavailable) as failure:
            return self.refuse(redirect_uri, state, oauth_error_of(failure).error, "try again in a moment")

    async def refuse_pending(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        refusal: Refusal,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        """Send the error of a pending request to the client."""
        await self.take(browser, pending_id, pending)
        request = pending.request
        return self.refuse(request.redirect_uri, request.state, refusal.error, refusal.description, cookies=cookies)

    def refuse_user(self, request: AuthorizationRequest, *, cookies: list[Cookie]) -> Answer:
        """Send the error that another user has signed in than the one of ``id_token_hint``."""
        description = "the user who signed in is not the one of id_token_hint"
        return self.refuse(request.redirect_uri, request.state, "login_required", description, cookies=cookies)

    def refuse(
        self,
        redirect_uri: str,
        state: str | None,
        error: str,
        description: str,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        """Send an error to the client."""
        parameters = {"error": error, "error_description": description} | _state(state) | {"iss": self._issuer}
        return redirect(with_parameters(redirect_uri, parameters), cookies=cookies or [])

    def first(
        self, path: str, pending_id: str, request: AuthorizationRequest, language: str | None, **more: str
    ) -> str:
        """Return the address of a page for a browser that comes from elsewhere."""
        return self._address(path, pending_id, request.client_id, language, **more)

    def next(self, browser: Browser, step: NextStep, pending_id: str) -> str:
        """Return the address of the page that follows one of our pages."""
        return self.address(browser, _PATHS[type(step)], pending_id)

    def address(self, browser: Browser, path: str, pending_id: str, **more: str) -> str:
        """Return the address of a page that the browser may open from one of ours."""
        query = browser.query()
        language = LANGUAGES.requested(query.get("ui_locales"))
        return self._address(path, pending_id, query.get("client_id"), language, **more)

    def form_action(self, browser: Browser, path: str, application: ApplicationState) -> str:
        """Return the address that a form of a page is sent to."""
        language = LANGUAGES.requested(browser.query().get("ui_locales"))
        return f"{path}?{query_of(client_id=application.id, ui_locales=language)}"

    def form_of(self, browser: Browser, pending_id: str, pending: Pending, application: ApplicationState) -> PageForm:
        """Return what the forms of a page have in common."""
        may_switch = pending.request.hinted_user_id is None
        return PageForm(
            request_id=pending_id,
            csrf_token=pending.csrf_token,
            cancel_action=self.form_action(browser, CANCEL, application),
            switch_action=self.form_action(browser, SWITCH, application) if may_switch else None,
        )

    def _grant(self, request: AuthorizationRequest, granted: Granted, *, cookies: list[Cookie] | None = None) -> Answer:
        parameters = {"code": granted.code} | _state(request.state) | {"iss": self._issuer}
        return redirect(with_parameters(request.redirect_uri, parameters), cookies=cookies or [])

    def _address(self, path: str, pending_id: str, client_id: str | None, language: str | None, **more: str) -> str:
        """Return the address of a page, with what the page needs even if the request is gone."""
        query = query_of(request=pending_id, client_id=client_id, ui_locales=language, **more)
        return f"{self._base_url}{path}?{query}"


def stated(refused: SignInRefused | Refused | None) -> dict[str, Any]:
    """Return what a page says about a refusal, and the status and headers of the response."""
    problem: str | None = None
    status, wait_s = 200, None
    if isinstance(refused, SignInRefused):
        problem, status, wait_s = refused.problem, refused.status, refused.retry_after_s
    elif refused is not None:
        problem = refused.reason
        if problem == "throttled":
            status, wait_s = 429, max(refused.retry_after_s, 1)
    headers = None if wait_s is None else {"Retry-After": str(wait_s)}
    return {"problem": problem, "status": status, "headers": headers, "wait_minutes": -(-(wait_s or 0) // _MINUTE_S)}


def query_of(**parameters: str | None) -> str:
    """Return the query of an address; None leaves a parameter out."""
    return urlencode({name: value for name, value in parameters.items() if value is not None})


def _state(state: str | None) -> dict[str, str]:
    return {} if state is None else {"state": state}
