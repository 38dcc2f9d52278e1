"""``/oidc/session/end``: signing out at the request of an application (OpenID Connect RP-Initiated Logout 1.0)."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.handlers import HTTPRouteHandler

from identity_common.http.layers.head import UNSAFE_GET
from identity_common.identifiers import new_secret
from identity_common.pages.cookies import Cookies
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.events import ApplicationState
from token_service.audit import TokenAudit
from token_service.sign_in.arrived_sign_outs import MAX_STORED_BYTES, ArrivedSignOuts, weight_of
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.pages.browser import Browser, is_from_page, redirect
from token_service.sign_in.pages.consent import name_of
from token_service.sign_in.pages.cookies import BROWSER, SESSION
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.redirect_uris import with_parameters
from token_service.sign_in.request import BadRequest, Parameters, parse_parameters
from token_service.sign_in.sessions import Sessions
from token_service.tokens.id_token_hints import IdTokenHints

PATH: Final = "/oidc/session/end"
_ARRIVED: Final = "/oidc/session/end/continue"
_FORM_VALUES: Final = ("client_id", "post_logout_redirect_uri", "state", "ui_locales")

Answer = Response[str] | Response[None]


class EndSession:
    """Answers the endpoint.

    With an ID token of the signed-in user the session ends at once. Without one the user is asked, because any site can
    send a browser here; one click then leads to the address that the application has registered. The application's
    authorizations in the session that its ID token names end in any case, even if the browser has lost that session or
    another user is signed in. Redirects go to registered URIs only. Nothing of a refused request is used, but the page
    that says so can sign out: the user expects it (section 4).

    A form of another site comes without the browser's cookies (``SameSite=Lax``), so it cannot be decided: it is stored
    until the browser follows a redirect, and then counts as if it had come with them.
    """

    def __init__(
        self,
        flow: SignInFlow,
        sessions: Sessions,
        hints: IdTokenHints,
        audit: TokenAudit,
        arrived: ArrivedSignOuts,
        waiting: SourceLimit,
        *,
        base_url: str,
        trusted_proxies: int,
    ) -> None:
        self._arrived = arrived
        self._waiting = waiting
        self._base_url = base_url
        self._flow = flow
        self._sessions = sessions
        self._hints = hints
        self._audit = audit
        self._trusted_proxies = trusted_proxies
        self._cookies = Cookies(secure=base_url.startswith("https:"))

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(PATH, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def end_session(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._answer(browser, browser.query)

        @post(PATH, include_in_schema=False, exception_handlers=PROBLEMS)
        async def end_session_by_form(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            form = await browser.body()
            if browser.secret is None and browser.session_cookie is None:
                return await self._keep_arrived(browser, form)
            return await self._answer(browser, partial(parse_parameters, form))

        @get(_ARRIVED, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def end_session_arrived(request: AnyRequest) -> Answer:
            browser = self._browser(request)
            return await self._end_arrived(browser, browser.query().get("request") or "")

        return [end_session, end_session_by_form, end_session_arrived]

    async def _keep_arrived(self, browser: Browser, form: bytes) -> Answer:
        """Store a request, and redirect to where it continues; one beyond a limit continues without its parameters."""
        weight = weight_of(form)
        if len(form) > MAX_STORED_BYTES or await self._waiting.count(browser.address, weight=weight) is not None:
            return redirect(f"{self._base_url}{PATH}")
        arrived_id = await self._arrived.keep(form)
        return redirect(f"{self._base_url}{_ARRIVED}?request={arrived_id}")

    async def _end_arrived(self, browser: Browser, arrived_id: str) -> Answer:
        """Continue a request; without its parameters if it has expired, or the page was opened again."""
        form = await self._arrived.take(arrived_id)
        if form is not None:
            await self._waiting.forgive(browser.address, weight=weight_of(form))
        return await self._answer(browser, partial(parse_parameters, form or b""))

    async def _answer(self, browser: Browser, read: Callable[[], Parameters]) -> Answer:
        parameters = Parameters({})
        try:
            parameters = read()
            return await self._end(browser, parameters)
        except BadRequest as refused:
            if await self._sessions.find(browser.session_cookie) is None:
                raise
            return self._form(browser, parameters, "bad_sign_out.html", status=400, reason=refused.reason)

    async def _end(self, browser: Browser, parameters: Parameters) -> Answer:
        if parameters.repeated:
            raise BadRequest("a parameter is repeated")
        hint = await self._hints.read(parameters.get("id_token_hint"))
        client_id = parameters.get("client_id") or (hint.client_id if hint else None)
        if hint is not None and client_id != hint.client_id:
            raise BadRequest("id_token_hint was not issued to this client_id")
        application = await self._flow.requests.application(client_id)
        target = await self._target(parameters, application)
        has_left = hint is not None and await self._flow.sign_out_client(hint)
        session = await self._sessions.find(browser.session_cookie)
        is_agreed = hint is not None and (session is None or session.user_id == hint.user_id)
        is_answered = (
            browser.is_post and browser.secret is not None and is_from_page(parameters, _csrf_token(browser.secret))
        )
        is_cancelled = is_answered and parameters.get("decision") == "cancel"
        if is_answered:
            is_agreed = not is_cancelled
        if hint is not None and has_left and not (session is not None and is_agreed):
            self._audit.signed_out_of(hint.client_id, hint.user_id, origin=browser.origin)
        if is_cancelled and session and application and target:
            return page("still_signed_in.html", browser.language(parameters), application=application, target=target)
        if session is not None and not is_agreed:
            return await self._ask(browser, parameters, application, target)
        if session is not None:
            await self._flow.sign_out(session)
            known = None if application is None else application.id
            self._audit.signed_out(session.user_id, client_id=known, origin=browser.origin)
        return self._signed_out(browser, parameters, application, target)

    async def _target(self, parameters: Parameters, application: ApplicationState | None) -> str | None:
        """Return the redirect URI after sign-out, if any (section 3)."""
        target = parameters.get("post_logout_redirect_uri")
        if target is None:
            return None
        if application is not None and target not in application.post_logout_redirect_uris:
            application = await self._flow.requests.as_of_now(application)
        if application is None or target not in application.post_logout_redirect_uris:
            raise BadRequest("post_logout_redirect_uri is not registered for the application")
        return target

    async def _ask(
        self, browser: Browser, parameters: Parameters, application: ApplicationState | None, target: str | None
    ) -> Answer:
        passed_on = {name: value for name in _FORM_VALUES if (value := parameters.get(name)) is not None}
        shared: dict[str, Any] = {"application": application, "parameters": passed_on}
        if application is None or target is None:
            return self._form(browser, parameters, "sign_out.html", **shared)
        who = await self._flow.signed_in(browser.session_cookie)
        person = name_of(who.person.user) if who else None
        return self._form(browser, parameters, "confirm_sign_out.html", leads_elsewhere=True, person=person, **shared)

    def _form(self, browser: Browser, parameters: Parameters, template: str, /, **values: Any) -> Answer:
        """Return a page whose form signs out, and remember the browser that it is for."""
        secret = browser.secret or new_secret()
        language = browser.language(parameters)
        answer = page(template, language, action=PATH, csrf_token=_csrf_token(secret), **values)
        if browser.secret is None:
            answer.cookies.append(self._cookies.set(BROWSER, secret))
        return answer

    def _signed_out(
        self, browser: Browser, parameters: Parameters, application: ApplicationState | None, target: str | None
    ) -> Answer:
        state = parameters.get("state")
        cookies = [] if browser.session_cookie is None else [self._cookies.clear(SESSION)]
        if target is not None:
            return redirect(with_parameters(target, {"state": state} if state else {}), cookies=cookies)
        answer = page("signed_out.html", browser.language(parameters), application=application)
        answer.cookies.extend(cookies)
        return answer

    def _browser(self, request: AnyRequest) -> Browser:
        return Browser(request, self._cookies, trusted_proxies=self._trusted_proxies)


def _csrf_token(browser_secret: str) -> str:
    """Return the token of this browser's form; the secret itself stays in its cookie."""
    return hashlib.sha256(f"sign-out {browser_secret}".encode()).hexdigest()
