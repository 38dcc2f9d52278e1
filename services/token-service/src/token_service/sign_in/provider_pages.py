"""Signing in at the provider of a connector: the way there, the callback, and linking an account that exists already.

What goes wrong leads back to the sign-in page, which keeps the request: the callback's address, with the code, is not
shown and cannot be loaded again.
"""

from collections.abc import Sequence

import msgspec
from litestar import get
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from identity_common.clock import Clock, now_ms
from identity_common.http.layers.head import UNSAFE_GET
from identity_common.wire.events import ConnectorState
from identity_common.wire.provider_sign_in import AccountFound
from token_service.sign_in.attempts import SignInRefused
from token_service.sign_in.flow import SignInFlow, acceptable
from token_service.sign_in.pages.browser import Browser, redirect
from token_service.sign_in.pages.cookies import of_sign_in
from token_service.sign_in.pages.languages import LANGUAGES
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pending import Pending, PendingLink, ProviderVisit
from token_service.sign_in.pending_pages import CONNECT, SIGN_IN, Answer, PendingPages
from token_service.sign_in.provider_checks import CALLBACK, ProviderChecks, at_provider
from token_service.sign_in.request import ACTION_MAX_AGE_S, AuthorizationRequest, Parameters
from token_service.sign_in.sign_in_page import IDENTIFIER, LEAVE_LINK, PROVIDER, SignInPage
from token_service.sign_in.sign_ins import SignIns
from token_service.sign_in.steps import NeedsLink


class ProviderPages:
    """Sends browsers to providers, and continues when they come back.

    Args:
        flow: Decides the next step.
        pages: What the pages of a pending request have in common.
        sign_in_page: Shows the sign-in page.
        checks: Asks the providers.
        sign_ins: Signs users in.
    """

    def __init__(
        self,
        flow: SignInFlow,
        pages: PendingPages,
        sign_in_page: SignInPage,
        checks: ProviderChecks,
        sign_ins: SignIns,
        *,
        clock: Clock = now_ms,
    ) -> None:
        self._flow = flow
        self._pages = pages
        self._sign_in_page = sign_in_page
        self._checks = checks
        self._sign_ins = sign_ins
        self._clock = clock

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(f"{CALLBACK}/{{connector_id:str}}", include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def arrive(request: AnyRequest, connector_id: FromPath[str]) -> Answer:
            return await self._arrive(self._pages.browser(request), connector_id)

        @get(CONNECT, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def connect(request: AnyRequest) -> Answer:
            return await self._connect(self._pages.browser(request))

        forms = {IDENTIFIER: self._identify, PROVIDER: self._choose, LEAVE_LINK: self._leave_link}
        return [arrive, connect, *(self._pages.form_route(path, handle) for path, handle in forms.items())]

    async def send_away(
        self,
        browser: Browser,
        pending_id: str,
        request: AuthorizationRequest,
        connector: ConnectorState,
        *,
        language: str | None,
        login_hint: str | None = None,
        cookies: Sequence[Cookie] = (),
    ) -> Answer:
        """Redirect the browser of a pending request to a provider, or to the sign-in page if that is not possible.

        Args:
            browser: The browser.
            pending_id: The request's id.
            request: The request.
            connector: Whose provider.
            language: Of the pages, if the client has asked for one.
            login_hint: Who is expected, as typed.
            cookies: To set.
        """
        hint = login_hint or request.login_hint
        try:
            url = await self._checks.begin(
                pending_id,
                request,
                connector,
                level=await self._flow.requests.level_wanted(request),
                language=language,
                login_hint=hint if hint and self._flow.connectors.of_address(hint) in {None, connector} else None,
                origin=browser.origin,
            )
        except SignInRefused as refused:
            return self._to_page(pending_id, request, language, refused, cookies=cookies)
        return redirect(url, cookies=cookies)

    async def _identify(self, browser: Browser, form: Parameters) -> Answer:
        """Send the owner of an address to its provider; ask anyone else for a password."""
        pending_id, pending = await self._pages.posted(browser, form)
        application = await self._pages.application(pending)
        identifier = (form.get("identifier") or "").strip()
        connector = self._flow.connectors.of_address(identifier)
        if connector is None or form.get("way") == "password":
            return await self._sign_in_page.show(
                browser, pending_id, pending, application, identifier, asks_password=True
            )
        return await self._send_from_page(browser, pending_id, pending, connector, login_hint=identifier)

    async def _choose(self, browser: Browser, form: Parameters) -> Answer:
        """Send the browser to the provider whose button was pressed."""
        pending_id, pending = await self._pages.posted(browser, form)
        connector = self._flow.connectors.open(form.get("connector"))
        if connector is None:
            return self._to_page(pending_id, pending.request, _language(browser), SignInRefused("connector-closed"))
        return await self._send_from_page(browser, pending_id, pending, connector)

    async def _send_from_page(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        connector: ConnectorState,
        *,
        login_hint: str | None = None,
    ) -> Answer:
        if pending.link is not None:  # another way was taken
            await self._pages.pending.finish_link(pending_id, pending)
        language, request = _language(browser), pending.request
        if acceptable(await self._flow.signed_in(browser.session_cookie), pending) is not None:
            at_most = ACTION_MAX_AGE_S if request.max_age_s is None else min(request.max_age_s, ACTION_MAX_AGE_S)
            request = msgspec.structs.replace(request, max_age_s=at_most)  # only a recent sign-in leads on
        return await self.send_away(browser, pending_id, request, connector, language=language, login_hint=login_hint)

    async def _arrive(self, browser: Browser, connector_id: str) -> Answer:
        """Continue with what a provider has sent the browser back with.

        Source:
            OpenID Connect Core 1.0 sections 3.1.2.5 and 3.1.2.6; RFC 9700 section 4.4.2 (mix-up).
        """
        answer = browser.query()
        state = answer.get("state") or ""
        pending_id = state.partition(".")[0]
        pending = await self._pages.find(browser, pending_id)
        visit = await self._pages.pending.take_visit(pending_id, state=state)
        if visit is None or answer.repeated:
            raise self._pages.expired(browser)
        try:
            return await self._accept(browser, connector_id, pending_id, pending, visit, answer)
        except SignInRefused as refused:
            return self._to_page(pending_id, pending.request, visit.language, refused)

    async def _accept(
        self,
        browser: Browser,
        connector_id: str,
        pending_id: str,
        pending: Pending,
        visit: ProviderVisit,
        answer: Parameters,
    ) -> Answer:
        request, origin = pending.request, browser.origin
        if visit.connector_id != connector_id:
            raise await self._checks.mixed_up(connector_id, origin, request.client_id)
        connector = self._flow.connectors.open(connector_id)
        if connector is None:
            raise SignInRefused("connector-closed")
        judged_at = max(self._clock(), connector.closed_at)  # by another machine's clock
        language = visit.language or browser.language(Parameters({}))
        found = await self._checks.finish(visit, answer, language=language, origin=origin, client_id=request.client_id)
        if isinstance(found, AccountFound):
            link = PendingLink(
                connector_id=connector_id, link=found.link, identifier=found.identifier, begun_at=visit.begun_at
            )
            await self._pages.pending.keep_link(pending_id, pending, link, now=self._clock())
            return self._to_page(pending_id, request, visit.language)
        begun = await self._sign_ins.begin(
            found.user_id,
            judged_at=judged_at,
            tokens_valid_after=found.tokens_valid_after,
            revision=found.revision,
            origin=origin,
            session_cookie=browser.session_cookie,
            device_cookie=browser.device_cookie,
            client_id=request.client_id,
            method="provider",
            provider=at_provider(found, connector_id, begun_at=visit.begun_at, visit=visit),
        )
        cookies = of_sign_in(begun, self._pages.cookies)
        if not request.accepts(found.user_id):
            await self._pages.take(browser, pending_id, pending)
            return self._pages.refuse_user(request, cookies=cookies)
        return self._to_page(pending_id, request, visit.language, cookies=cookies)

    async def _connect(self, browser: Browser) -> Answer:
        """Link the identity that waits for it, now that its owner has signed in to the account."""
        pending_id = browser.query().get("request") or ""
        pending = await self._pages.find(browser, pending_id)
        step = await self._pages.needed(browser, pending_id, pending, (NeedsLink,))
        if not isinstance(step, NeedsLink):
            return step
        link = pending.link
        if link is None:
            raise self._pages.expired(browser)
        request, language = pending.request, _language(browser)
        try:
            person = await self._checks.link(
                link,
                step.who.person.user.id,
                language=browser.language(browser.query()),
                origin=browser.origin,
                client_id=request.client_id,
            )
        except SignInRefused as refused:
            kept = link if refused.problem == "another-account" else None
            await self._pages.pending.keep_link(pending_id, pending, kept, now=self._clock())
            return self._to_page(pending_id, request, language, refused)
        at = at_provider(person, link.connector_id, begun_at=link.begun_at)
        begun = await self._sign_ins.add_factor(
            step.who,
            "provider",
            revision=person.revision,
            origin=browser.origin,
            device_cookie=browser.device_cookie,
            client_id=request.client_id,
            provider=at,
            tokens_valid_after=person.tokens_valid_after,
        )
        if begun is None:
            raise self._pages.expired(browser)
        await self._pages.pending.finish_link(pending_id, pending)
        return self._to_page(pending_id, request, language, cookies=of_sign_in(begun, self._pages.cookies))

    async def _leave_link(self, browser: Browser, form: Parameters) -> Answer:
        """Sign in without linking the account."""
        pending_id, pending = await self._pages.posted(browser, form)
        await self._pages.pending.keep_link(pending_id, pending, None, now=self._clock())
        return self._to_page(pending_id, pending.request, _language(browser))

    def _to_page(
        self,
        pending_id: str,
        request: AuthorizationRequest,
        language: str | None,
        refused: SignInRefused | None = None,
        *,
        cookies: Sequence[Cookie] = (),
    ) -> Answer:
        """Redirect to the sign-in page, which goes on if the user has signed in."""
        problem = {} if refused is None else {"problem": refused.problem}
        return redirect(self._pages.first(SIGN_IN, pending_id, request, language, **problem), cookies=cookies)


def _language(browser: Browser) -> str | None:
    return LANGUAGES.requested(browser.query().get("ui_locales"))
