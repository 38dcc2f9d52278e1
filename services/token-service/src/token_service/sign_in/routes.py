"""``/oidc/auth`` (RFC 6749 section 4.1.1, OpenID Connect Core 1.0 section 3.1.2) and the pages that it leads to.

The flow decides the next step; a page asks for what is missing. Errors go to the client's redirect URI only after
client and redirect URI were validated; before that a page shows them.
"""

from functools import partial
from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.clock import Clock, now_ms
from identity_common.http.layers.head import UNSAFE_GET
from identity_common.wire.events import ApplicationState
from token_service.sign_in.attempts import SignInRefused
from token_service.sign_in.client_address import ProxyWatch
from token_service.sign_in.factor_checks import FactorChecks
from token_service.sign_in.factor_pages import FactorPages
from token_service.sign_in.flow import SignInFlow, acceptable
from token_service.sign_in.pages.assets import asset_routes
from token_service.sign_in.pages.browser import Browser, redirect
from token_service.sign_in.pages.consent import Form, consent_page, identifier_of, name_of
from token_service.sign_in.pages.cookies import of_sign_in
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.pending import Pending
from token_service.sign_in.pending_pages import (
    ACCOUNT,
    CANCEL,
    CONSENT,
    SIGN_IN,
    SWITCH,
    Answer,
    PendingPages,
    query_of,
)
from token_service.sign_in.provider_pages import ProviderPages
from token_service.sign_in.redirect_uris import destination
from token_service.sign_in.request import (
    AuthorizationRequest,
    BadRequest,
    Parameters,
    Refusal,
    state_of,
)
from token_service.sign_in.sign_in_page import PASSKEY, SignInPage, problem_of
from token_service.sign_in.sign_ins import Begun, SignIns, linked_to
from token_service.sign_in.steps import Granted, NeedsAccount, NeedsConsent, NeedsMore, NeedsSignIn, SignedIn

PATH: Final = "/oidc/auth"
_ARRIVED: Final = "/oidc/auth/continue"
_SELECTIONS: Final = {"select-all": True, "select-none": False}
"""Form values that change the list of organizations; the page is shown again."""


class AuthorizationPages:
    """Answers the authorization endpoint and its pages.

    Args:
        flow: Decides the next step.
        pages: What the pages of a pending request have in common.
        sign_ins: Signs users in.
        checks: Checks passkeys.
        sign_in_page: Shows the sign-in page.
        providers: Send browsers to other providers.
        factor_pages: Ask for the factor that is missing after a sign-in.
        base_url: The base of links.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        flow: SignInFlow,
        pages: PendingPages,
        sign_ins: SignIns,
        checks: FactorChecks,
        sign_in_page: SignInPage,
        providers: ProviderPages,
        factor_pages: FactorPages,
        *,
        base_url: str,
        trusted_proxies: int,
        clock: Clock = now_ms,
    ) -> None:
        self._flow = flow
        self._pages = pages
        self._sign_ins = sign_ins
        self._checks = checks
        self._sign_in_page = sign_in_page
        self._providers = providers
        self._factor_pages = factor_pages
        self._base_url = base_url
        self._proxies = ProxyWatch(trusted_proxies=trusted_proxies)
        self._clock = clock

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(PATH, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def authorize(request: AnyRequest) -> Answer:
            browser = self._pages.browser(request)
            return await self._authorize(browser, browser.query())

        @post(PATH, include_in_schema=False, exception_handlers=PROBLEMS)
        async def authorize_by_form(request: AnyRequest) -> Answer:
            browser = self._pages.browser(request)
            return await self._authorize(browser, await browser.form(), is_form=True)

        @get(_ARRIVED, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def authorize_arrived(request: AnyRequest) -> Answer:
            browser = self._pages.browser(request)
            return await self._begin_arrived(browser, browser.query().get("request") or "")

        @get([SIGN_IN, ACCOUNT, CONSENT], include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def show(request: AnyRequest) -> Answer:
            browser = self._pages.browser(request)
            return await self._show(browser, browser.query().get("request") or "")

        forms = {
            SIGN_IN: self._sign_in,
            PASSKEY: self._sign_in_by_passkey,
            CANCEL: self._pages.deny,
            ACCOUNT: self._select_account,
            CONSENT: self._consent,
            SWITCH: self._switch,
        }
        answering = [self._pages.form_route(path, handle) for path, handle in forms.items()]
        return [authorize, authorize_by_form, authorize_arrived, show, *answering, *asset_routes()]

    async def _authorize(self, browser: Browser, parameters: Parameters, *, is_form: bool = False) -> Answer:
        """Validate a new request, and take its first step.

        A form of another site comes without the browser's cookies (``SameSite=Lax``): a session would not be seen, and
        other tabs would lose their requests to a new cookie. Its request begins when the browser follows a redirect.
        """
        application, redirect_uri = await self._flow.requests.client_of(parameters)
        language = LANGUAGES.requested(parameters.get("ui_locales"))

        async def answer() -> Answer:
            request = await self._flow.requests.judge(parameters, application, redirect_uri)
            if is_form and browser.secret is None and browser.session_cookie is None:
                return await self._keep_arrived(browser, request, language)
            return await self._begin(browser, request, language)

        return await self._pages.or_refuse(answer(), redirect_uri, state_of(parameters))

    async def _keep_arrived(self, browser: Browser, request: AuthorizationRequest, language: str | None) -> Answer:
        await self._pages.require_place(browser, request)
        pending_id = await self._pages.pending.keep_arrived(request, now=self._clock())
        query = query_of(request=pending_id, client_id=request.client_id, ui_locales=language)
        return redirect(f"{self._base_url}{_ARRIVED}?{query}")

    async def _begin_arrived(self, browser: Browser, pending_id: str) -> Answer:
        pending = await self._pages.pending.take_arrived(pending_id)
        if pending is None:
            raise self._pages.expired(browser)
        await self._pages.forgive(browser, pending)
        request, language = pending.request, LANGUAGES.requested(browser.query().get("ui_locales"))
        return await self._pages.or_refuse(self._begin(browser, request, language), request.redirect_uri, request.state)

    async def _begin(self, browser: Browser, request: AuthorizationRequest, language: str | None) -> Answer:
        who = await self._flow.signed_in(browser.session_cookie)
        step = await self._flow.begin(request, who)
        if not isinstance(step, Granted):
            await self._pages.require_place(browser, request)
        if isinstance(step, NeedsSignIn):
            connector = await self._flow.connector_of(request, browser.session_cookie)
            if connector is not None:
                pending_id, cookies = await self._pages.keep(browser, request)
                return await self._providers.send_away(
                    browser, pending_id, request, connector, language=language, cookies=cookies
                )
        return await self._pages.begin(browser, request, step, language)

    async def _show(self, browser: Browser, pending_id: str, *, select_all: bool | None = None) -> Answer:
        """Show the page that a pending request needs, regardless of the page that was opened.

        Args:
            browser: The browser that opened it.
            pending_id: The request's id.
            select_all: Whether all organizations are ticked, or none is; None for those that were picked before.
        """
        pending = await self._pages.find(browser, pending_id)
        application = await self._pages.application(pending)
        who = await self._flow.signed_in(browser.session_cookie)
        try:
            step = await self._flow.resume(pending, who)
        except Refusal as refusal:
            return await self._pages.refuse_pending(browser, pending_id, pending, refusal)
        if isinstance(step, NeedsMore):
            return redirect(self._pages.next(browser, step, pending_id))
        if isinstance(step, NeedsSignIn):
            hint, refused = pending.request.login_hint or "", problem_of(browser)
            accepted = acceptable(who, pending)
            if refused is None and accepted is not None and accepted.session.provider is not None:
                refused = SignInRefused("signed-in-too-long-ago")
            return await self._sign_in_page.show(browser, pending_id, pending, application, hint, refused)
        if isinstance(step, NeedsAccount):
            return self._account_page(browser, pending_id, pending, application, step.who)
        if isinstance(step, NeedsConsent):
            return await self._consent_page(browser, pending_id, pending, application, step, select_all=select_all)
        return await self._pages.finish(browser, pending_id, pending, step)

    async def _sign_in(self, browser: Browser, form: Parameters) -> Answer:
        """Sign in with a password, and take the next step."""
        pending_id, pending = await self._pages.posted(browser, form)
        application = await self._pages.application(pending)
        is_remembered = form.get("remember") is not None
        identifier = (form.get("identifier") or "").strip()  # keyboards add a space when they complete a word
        self._proxies.see(browser.address, is_forwarded=browser.is_forwarded)
        try:
            begun = await self._sign_ins.sign_in(
                identifier,
                form.get("password") or "",
                origin=browser.origin,
                session_cookie=browser.session_cookie,
                device_cookie=browser.device_cookie,
                client_id=application.id,
                is_remembered=is_remembered,
                link=pending.link,
            )
        except SignInRefused as refused:
            return await self._sign_in_page.show(
                browser, pending_id, pending, application, identifier, refused, asks_password=True
            )
        return await self._begun(browser, pending_id, pending, begun)

    async def _sign_in_by_passkey(self, browser: Browser, form: Parameters) -> Answer:
        """Sign in with a passkey, which says who the user is, and take the next step."""
        pending_id, pending = await self._pages.posted(browser, form)
        application = await self._pages.application(pending)
        origin, credential, judged_at = browser.origin, form.get("credential") or "", self._clock()
        try:
            accepted = await self._checks.passkey(
                pending_id,
                credential,
                user_id=None,
                origin=origin,
                client_id=application.id,
                link=pending.link.link if pending.link else None,
            )
            begun = await self._sign_ins.begin(
                accepted.user_id,
                judged_at=judged_at,
                tokens_valid_after=accepted.tokens_valid_after,
                revision=accepted.revision,
                origin=origin,
                session_cookie=browser.session_cookie,
                device_cookie=browser.device_cookie,
                client_id=application.id,
                is_remembered=form.get("remember") is not None,
                method=accepted.method,
                provider=linked_to(pending.link, judged_at),
            )
        except SignInRefused as refused:
            return await self._sign_in_page.show(browser, pending_id, pending, application, "", refused)
        return await self._begun(browser, pending_id, pending, begun)

    async def _begun(self, browser: Browser, pending_id: str, pending: Pending, begun: Begun) -> Answer:
        """Take the next step after a sign-in."""
        cookies, request, who = of_sign_in(begun, self._pages.cookies), pending.request, begun.who
        if not request.accepts(who.person.user.id):
            await self._pages.take(browser, pending_id, pending)
            return self._pages.refuse_user(request, cookies=cookies)
        factor_page = partial(self._factor_pages.show, armed=begun.factors)
        return await self._pages.resume(browser, pending_id, pending, who, cookies=cookies, factor_page=factor_page)

    async def _select_account(self, browser: Browser, form: Parameters) -> Answer:
        """Handle the user's selection, which must be explicit.

        Source:
            OpenID Connect Core 1.0 section 3.1.2.1 (an error, where no account is selected).
        """
        pending_id, pending = await self._pages.posted(browser, form)
        decision = form.get("decision")
        if decision == "cancel":
            await self._pages.take(browser, pending_id, pending)
            request, description = pending.request, "the user did not select an account"
            return self._pages.refuse(request.redirect_uri, request.state, "account_selection_required", description)
        if decision == "another":
            await self._pages.pending.require_sign_in(pending_id, pending, now=self._clock())
            return redirect(self._pages.next(browser, NeedsSignIn(), pending_id))
        if decision != "continue":
            raise BadRequest("decision must be continue, another or cancel")
        who = await self._flow.signed_in(browser.session_cookie)
        if who and who.person.user.id == form.get("account"):  # another may have signed in since the page was shown
            pending = await self._pages.pending.select_account(
                pending_id, pending, login_hint=identifier_of(who.person.user)
            )
        return await self._pages.resume(browser, pending_id, pending, who)

    async def _consent(self, browser: Browser, form: Parameters) -> Answer:
        """Handle the user's decision, which must be explicit."""
        decision = form.get("decision")
        if decision == "deny":
            return await self._pages.deny(browser, form)
        pending_id, pending = await self._pages.posted(browser, form)
        if decision in _SELECTIONS:
            return await self._show(browser, pending_id, select_all=_SELECTIONS[decision])
        application = await self._pages.application(pending)
        signed_in = await self._flow.signed_in(browser.session_cookie)
        try:
            who = self._flow.before_consent(pending, signed_in, application)
        except Refusal as refusal:
            return await self._pages.refuse_pending(browser, pending_id, pending, refusal)
        if not isinstance(who, SignedIn):
            return redirect(self._pages.next(browser, who, pending_id))
        if decision != "allow":
            raise BadRequest("decision must be allow or deny")
        picked = await self._picked(pending.request, who, application, form)
        await self._pages.take(browser, pending_id, pending)
        step = await self._flow.agree(pending, who, application, organizations=picked)
        return await self._pages.begin(
            browser, pending.request, step, LANGUAGES.requested(browser.query().get("ui_locales"))
        )

    async def _switch(self, browser: Browser, form: Parameters) -> Answer:
        """Ask for another sign-in; the session goes on until another user has signed in."""
        pending_id, pending = await self._pages.posted(browser, form)
        await self._pages.pending.require_sign_in(pending_id, pending, now=self._clock())
        return redirect(self._pages.next(browser, NeedsSignIn(), pending_id))

    async def _picked(
        self, request: AuthorizationRequest, who: SignedIn, application: ApplicationState, form: Parameters
    ) -> frozenset[str] | None:
        """Return the organizations that were picked on the page; None if it had none to pick."""
        if form.get("organizations") is None:
            return None
        shown = await self._flow.access.pickable(request, who, application)
        return None if shown is None else frozenset(form.organizations) & {each.id for each in shown}

    def _account_page(
        self, browser: Browser, pending_id: str, pending: Pending, application: ApplicationState, who: SignedIn
    ) -> Answer:
        user = who.person.user
        return page(
            "account.html",
            browser.language(browser.query()),
            application=application,
            leads_elsewhere=True,
            action=self._pages.form_action(browser, ACCOUNT, application),
            request_id=pending_id,
            csrf_token=pending.csrf_token,
            account=user.id,
            person=name_of(user),
            identifier=identifier_of(user),
            may_switch=pending.request.hinted_user_id is None,
        )

    async def _consent_page(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        application: ApplicationState,
        step: NeedsConsent,
        *,
        select_all: bool | None,
    ) -> Answer:
        organizations = await self._flow.access.pickable(pending.request, step.who, application)
        picked = None if select_all is None else frozenset(each.id for each in organizations or () if select_all)
        request = pending.request
        may_switch = request.hinted_user_id is None
        form = Form(
            action=self._pages.form_action(browser, CONSENT, application),
            switch_action=self._pages.form_action(browser, SWITCH, application) if may_switch else None,
            destination=destination(request.redirect_uri, is_native=application.type == "Native"),
            request_id=pending_id,
            csrf_token=pending.csrf_token,
        )
        return consent_page(
            step,
            self._flow.access.descriptions(step.wanted),
            form,
            language=browser.language(browser.query()),
            application=application,
            organizations=organizations,
            picked=picked,
        )
