"""``/oidc/auth`` (RFC 6749 section 4.1.1, OpenID Connect Core 1.0 section 3.1.2) and the pages that it leads to.

The flow decides the next step, and a page asks for what is missing. Errors go to the client's redirect URI only after
client and redirect URI were validated; before that a page shows them.
"""

from typing import Final
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_secret
from identity_common.oauth import OAuthError
from identity_common.stores.redis import StoreUnavailable
from identity_common.wire.events import ApplicationState
from token_service.sign_in.client_address import ProxyWatch
from token_service.sign_in.devices import DEVICE_TTL_S
from token_service.sign_in.flow import Granted, NeedsConsent, NeedsSignIn, NextStep, SignedIn, SignInFlow, acceptable
from token_service.sign_in.pages.browser import Browser, is_from_page, redirect
from token_service.sign_in.pages.consent import consent_page
from token_service.sign_in.pages.cookies import BROWSER, DEVICE, SESSION, Cookies
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest, Expired
from token_service.sign_in.pages.views import STYLE, STYLE_PATH, page
from token_service.sign_in.password_sign_in import PasswordSignIn, SignInRefused
from token_service.sign_in.pending import Pending, PendingAuthorizations
from token_service.sign_in.redirect_uris import form_action_source, with_parameters
from token_service.sign_in.request import (
    AuthorizationRequest,
    BadRequest,
    Parameters,
    Refusal,
    parse_parameters,
    state_of,
)
from token_service.sign_in.sessions import SESSION_TTL_S
from token_service.sign_in.throttle import AddressLimit

PATH: Final = "/oidc/auth"
_SIGN_IN: Final = "/sign-in"
_CANCEL: Final = "/sign-in/cancel"
_CONSENT: Final = "/consent"
_STYLE_MAX_AGE_S: Final = 86_400

Answer = Response[str] | Response[None]


class AuthorizationPages:
    """Answers the authorization endpoint and its pages.

    Args:
        flow: Decides the next step.
        pending: Stores requests between pages.
        waiting: Limits how many requests of one address are stored.
        passwords: Signs people in.
        base_url: Of links.
        issuer: Sent with every answer (RFC 9207).
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        flow: SignInFlow,
        pending: PendingAuthorizations,
        waiting: AddressLimit,
        passwords: PasswordSignIn,
        *,
        base_url: str,
        issuer: str,
        trusted_proxies: int,
        clock: Clock = now_ms,
    ) -> None:
        self._flow = flow
        self._pending = pending
        self._waiting = waiting
        self._passwords = passwords
        self._base_url = base_url
        self._issuer = issuer
        self._trusted_proxies = trusted_proxies
        self._proxies = ProxyWatch(trusted_proxies=trusted_proxies)
        self._clock = clock
        self._cookies = Cookies(secure=base_url.startswith("https:"))

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(PATH, include_in_schema=False, exception_handlers=PROBLEMS)
        async def authorize(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._authorize(browser, parse_parameters(browser.query))

        @post(PATH, include_in_schema=False, exception_handlers=PROBLEMS)
        async def authorize_by_form(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._authorize(browser, await browser.form())

        @get(_SIGN_IN, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show_sign_in(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._show(browser, parse_parameters(browser.query).get("request"))

        @post(_SIGN_IN, include_in_schema=False, exception_handlers=PROBLEMS)
        async def sign_in(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._sign_in(browser, await browser.form())

        @post(_CANCEL, include_in_schema=False, exception_handlers=PROBLEMS)
        async def cancel(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._cancel(browser, await browser.form())

        @get(_CONSENT, include_in_schema=False, exception_handlers=PROBLEMS)
        async def show_consent(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._show(browser, parse_parameters(browser.query).get("request"))

        @post(_CONSENT, include_in_schema=False, exception_handlers=PROBLEMS)
        async def consent(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._consent(browser, await browser.form())

        @get(STYLE_PATH, include_in_schema=False, sync_to_thread=False)
        def style() -> Response[bytes]:
            headers = {"Cache-Control": f"public, max-age={_STYLE_MAX_AGE_S}", "X-Content-Type-Options": "nosniff"}
            return Response(STYLE, media_type="text/css", headers=headers)

        return [authorize, authorize_by_form, show_sign_in, sign_in, cancel, show_consent, consent, style]

    async def _authorize(self, browser: Browser, parameters: Parameters) -> Answer:
        """Validate a new request, and take its first step."""
        application, redirect_uri = await self._flow.client_of(parameters)
        state = state_of(parameters)
        try:
            request = await self._flow.judge(parameters, application, redirect_uri)
            who = await self._flow.signed_in(browser.session_cookie)
            step = await self._flow.begin(request, who)
            if not isinstance(step, Granted):
                await self._require_place(browser)
        except Refusal as refusal:
            return self._refuse(redirect_uri, state, refusal.error, refusal.description)
        except (OAuthError, StoreUnavailable):
            return self._refuse(redirect_uri, state, "temporarily_unavailable", "try again in a moment")
        return await self._continue(browser, request, step)

    async def _require_place(self, browser: Browser) -> None:
        """Count a request that is about to be stored; refuse it beyond the limit of its address.

        Sent to the client like any other refusal: it is one of RFC 6749 section 4.1.2.1.
        """
        if await self._waiting.count(browser.address):
            raise Refusal("temporarily_unavailable", "too many requests from this address are waiting for a sign-in")

    async def _continue(self, browser: Browser, request: AuthorizationRequest, step: NextStep) -> Answer:
        """Send the code, or store the request for this browser and redirect to the first page."""
        if isinstance(step, Granted):
            return self._grant(request, step)
        secret = browser.secret or new_secret()
        cookies = [] if browser.secret else [self._cookies.set(BROWSER, secret)]
        pending_id = await self._pending.keep(
            request, browser_secret=secret, now=self._clock(), is_signed_in=isinstance(step, NeedsConsent)
        )
        return redirect(self._address(step, pending_id), cookies=cookies)

    async def _show(self, browser: Browser, pending_id: str | None) -> Answer:
        """Show the page that a pending request needs, whichever was opened."""
        pending = await self._find(browser, pending_id)
        application = await self._application(pending)
        who = await self._flow.signed_in(browser.session_cookie)
        step = await self._flow.resume(pending, who)
        if isinstance(step, NeedsSignIn):
            return self._sign_in_page(pending_id or "", pending, application, pending.request.login_hint or "")
        if isinstance(step, NeedsConsent):
            return await self._consent_page(pending_id or "", pending, application, step)
        return await self._finish(browser, pending_id or "", pending, step)

    async def _sign_in(self, browser: Browser, form: Parameters) -> Answer:
        """Sign in with a password, and take the next step."""
        pending_id, pending = await self._posted(browser, form)
        application = await self._application(pending)
        identifier = (form.get("identifier") or "").strip()  # keyboards add a space when they complete a word
        self._proxies.see(browser.address, is_forwarded=browser.is_forwarded)
        try:
            begun = await self._passwords.sign_in(
                identifier,
                form.get("password") or "",
                address=browser.address,
                session_cookie=browser.session_cookie,
                device_cookie=browser.device_cookie,
                client_id=application.id,
            )
        except SignInRefused as refused:
            return self._sign_in_page(pending_id, pending, application, identifier, refused)
        cookies = [
            self._cookies.set(SESSION, begun.session_cookie, max_age_s=SESSION_TTL_S),
            self._cookies.set(DEVICE, begun.device_cookie, max_age_s=DEVICE_TTL_S),
        ]
        request, who = pending.request, begun.who
        if not request.accepts(who.person.user.id):
            await self._take(browser, pending_id)
            description = "the user who signed in is not the one of id_token_hint"
            return self._refuse(request.redirect_uri, request.state, "login_required", description, cookies=cookies)
        step = await self._flow.resume(pending, who)
        if isinstance(step, Granted):
            return await self._finish(browser, pending_id, pending, step, cookies=cookies)
        await self._pending.prolong(pending_id)
        return redirect(self._address(step, pending_id), cookies=cookies)

    async def _cancel(self, browser: Browser, form: Parameters) -> Answer:
        pending_id, pending = await self._posted(browser, form)
        await self._take(browser, pending_id)
        return self._deny(pending.request)

    async def _consent(self, browser: Browser, form: Parameters) -> Answer:
        """Take the user's decision, which must be explicit."""
        pending_id, pending = await self._posted(browser, form)
        decision = form.get("decision")
        if decision == "deny":
            await self._take(browser, pending_id)
            return self._deny(pending.request)
        who = acceptable(await self._flow.signed_in(browser.session_cookie), pending)
        if who is None:
            return redirect(self._address(NeedsSignIn(), pending_id))
        if decision != "allow":
            raise BadRequest("decision must be allow or deny")
        application = await self._application(pending)
        picked = await self._picked(pending.request, who, application, form)
        await self._take(browser, pending_id)
        return await self._continue(
            browser, pending.request, await self._flow.agree(pending, who, application, organizations=picked)
        )

    async def _picked(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState, form: Parameters
    ) -> frozenset[str] | None:
        """Return the organizations that were picked among those on the page; none if it had none to pick."""
        shown = await self._flow.pickable(request, who, application)
        return None if shown is None else frozenset(form.organizations) & {each.id for each in shown}

    async def _finish(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        step: Granted,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        await self._take(browser, pending_id)
        return self._grant(pending.request, step, cookies=cookies)

    async def _take(self, browser: Browser, pending_id: str) -> None:
        if not await self._pending.take(pending_id):
            raise Expired
        await self._waiting.forgive(browser.address)

    async def _find(self, browser: Browser, pending_id: str | None) -> Pending:
        pending = await self._pending.find(pending_id, browser_secret=browser.secret)
        if pending is None:
            raise Expired
        return pending

    async def _posted(self, browser: Browser, form: Parameters) -> tuple[str, Pending]:
        """Return the pending request of a form that this browser sent from our page."""
        pending_id = form.get("request") or ""
        pending = await self._find(browser, pending_id)
        if form.repeated or not is_from_page(form, pending.csrf_token):
            raise Expired
        return pending_id, pending

    async def _application(self, pending: Pending) -> ApplicationState:
        application = await self._flow.application(pending.request.client_id)
        if application is None:
            raise BadRequest("the application was deleted")
        return application

    def _sign_in_page(
        self,
        pending_id: str,
        pending: Pending,
        application: ApplicationState,
        identifier: str,
        refused: SignInRefused | None = None,
    ) -> Answer:
        retry_after_s = refused.retry_after_s if refused else None
        return page(
            "sign_in.html",
            status=refused.status if refused else 200,
            form_action=form_action_source(pending.request.redirect_uri),
            headers={"Retry-After": str(retry_after_s)} if retry_after_s is not None else None,
            application=application.name,
            action=_SIGN_IN,
            cancel_action=_CANCEL,
            request_id=pending_id,
            csrf_token=pending.csrf_token,
            identifier=identifier,
            problem=refused.problem if refused else "",
        )

    async def _consent_page(
        self, pending_id: str, pending: Pending, application: ApplicationState, step: NeedsConsent
    ) -> Answer:
        organizations = await self._flow.pickable(pending.request, step.who, application)
        return consent_page(
            step,
            self._flow.descriptions(step.wanted),
            application=application,
            organizations=organizations,
            form_action=form_action_source(pending.request.redirect_uri),
            action=_CONSENT,
            request_id=pending_id,
            csrf_token=pending.csrf_token,
        )

    def _grant(self, request: AuthorizationRequest, granted: Granted, *, cookies: list[Cookie] | None = None) -> Answer:
        parameters = {"code": granted.code} | _state(request.state) | {"iss": self._issuer}
        return redirect(with_parameters(request.redirect_uri, parameters), cookies=cookies or [])

    def _deny(self, request: AuthorizationRequest) -> Answer:
        return self._refuse(request.redirect_uri, request.state, "access_denied", "the user denied the request")

    def _refuse(
        self,
        redirect_uri: str,
        state: str | None,
        error: str,
        description: str,
        *,
        cookies: list[Cookie] | None = None,
    ) -> Answer:
        parameters = {"error": error, "error_description": description} | _state(state) | {"iss": self._issuer}
        return redirect(with_parameters(redirect_uri, parameters), cookies=cookies or [])

    def _address(self, step: NextStep, pending_id: str) -> str:
        path = _SIGN_IN if isinstance(step, NeedsSignIn) else _CONSENT
        return f"{self._base_url}{path}?{urlencode({'request': pending_id})}"

    def _browser(self, request: AnyRequest) -> Browser:
        return Browser(request, self._cookies, trusted_proxies=self._trusted_proxies)


def _state(state: str | None) -> dict[str, str]:
    return {} if state is None else {"state": state}
