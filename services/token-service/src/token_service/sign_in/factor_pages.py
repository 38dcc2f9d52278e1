"""The page that asks a signed-in user for another factor: a passkey, an authenticator app's code, a recovery code."""

from typing import Final

from litestar import get
from litestar.handlers import HTTPRouteHandler

from identity_common.http.layers.head import UNSAFE_GET
from identity_common.wire.events import ApplicationState
from identity_common.wire.factors import ArmedFactors, ReadFactors
from token_service.sign_in.attempts import SignInRefused
from token_service.sign_in.challenges import Challenges
from token_service.sign_in.factor_checks import FactorChecks
from token_service.sign_in.factors import Factors
from token_service.sign_in.pages.browser import Browser
from token_service.sign_in.pages.consent import name_of
from token_service.sign_in.pages.cookies import of_sign_in
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.pending import Pending
from token_service.sign_in.pending_pages import FACTOR, Answer, PendingPages, stated
from token_service.sign_in.request import Parameters
from token_service.sign_in.sign_ins import SignIns
from token_service.sign_in.steps import NeedsFactor

_PASSKEY: Final = f"{FACTOR}/passkey"


class FactorPages:
    """Asks for another factor.

    Args:
        pages: What the pages of a pending request have in common.
        factors: management-service's operations.
        checks: Checks the factors that a browser sends.
        challenges: For passkeys.
        sign_ins: Continues the session.
    """

    def __init__(
        self, pages: PendingPages, factors: Factors, checks: FactorChecks, challenges: Challenges, sign_ins: SignIns
    ) -> None:
        self._pages = pages
        self._factors = factors
        self._checks = checks
        self._challenges = challenges
        self._sign_ins = sign_ins

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(FACTOR, include_in_schema=False, exception_handlers=PROBLEMS, opt=UNSAFE_GET)
        async def show(request: AnyRequest) -> Answer:
            return await self._show(self._pages.browser(request))

        return [
            show,
            self._pages.form_route(FACTOR, self._use_code),
            self._pages.form_route(_PASSKEY, self._use_passkey),
        ]

    async def _show(self, browser: Browser) -> Answer:
        pending_id = browser.query().get("request") or ""
        pending = await self._pages.find(browser, pending_id)
        step = await self._pages.needed(browser, pending_id, pending, (NeedsFactor,))
        if not isinstance(step, NeedsFactor):
            return step
        return await self.show(browser, pending_id, pending, step)

    async def show(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        step: NeedsFactor,
        *,
        armed: ArmedFactors | None = None,
    ) -> Answer:
        """Show the page.

        Args:
            browser: The browser.
            pending_id: The request's id.
            pending: The request.
            step: What is missing.
            armed: What the user has set up, if it is known.
        """
        application = await self._pages.application(pending)
        return await self._page(browser, pending_id, pending, application, step, armed=armed)

    async def _use_code(self, browser: Browser, form: Parameters) -> Answer:
        return await self._use(browser, form, is_passkey=False)

    async def _use_passkey(self, browser: Browser, form: Parameters) -> Answer:
        return await self._use(browser, form, is_passkey=True)

    async def _use(self, browser: Browser, form: Parameters, *, is_passkey: bool) -> Answer:
        """Check the factor, and take the next step."""
        pending_id, pending = await self._pages.posted(browser, form)
        step = await self._pages.needed(browser, pending_id, pending, (NeedsFactor,))
        if not isinstance(step, NeedsFactor):
            return step
        application = await self._pages.application(pending)
        user_id = step.who.person.user.id
        try:
            if is_passkey:
                accepted = await self._checks.passkey(
                    pending_id,
                    form.get("credential") or "",
                    user_id=user_id,
                    origin=browser.origin,
                    client_id=application.id,
                )
            else:
                accepted = await self._checks.code(
                    user_id,
                    form.get("code") or "",
                    language=browser.language(browser.query()),
                    origin=browser.origin,
                    device_cookie=browser.device_cookie,
                    client_id=application.id,
                )
            begun = await self._sign_ins.add_factor(
                step.who,
                accepted.method,
                revision=accepted.revision,
                origin=browser.origin,
                device_cookie=browser.device_cookie,
                client_id=application.id,
            )
        except SignInRefused as refused:
            is_recovery = form.get("kind") == "recovery"
            return await self._page(
                browser, pending_id, pending, application, step, refused=refused, is_recovery=is_recovery
            )
        if begun is None:
            raise self._pages.expired(browser)
        cookies = of_sign_in(begun, self._pages.cookies)
        return await self._pages.resume(browser, pending_id, pending, begun.who, cookies=cookies)

    async def _page(
        self,
        browser: Browser,
        pending_id: str,
        pending: Pending,
        application: ApplicationState,
        step: NeedsFactor,
        *,
        armed: ArmedFactors | None = None,
        refused: SignInRefused | None = None,
        is_recovery: bool = False,
    ) -> Answer:
        user = step.who.person.user
        armed = armed or await self._armed(user.id)
        action = self._pages.form_action(browser, _PASSKEY, application)
        passkey = None
        if armed.passkeys:
            passkey = await self._challenges.begin(
                pending_id, user_id=user.id, action=action, credentials=armed.passkeys
            )
        return page(
            "factor.html",
            browser.language(browser.query()),
            application=application,
            leads_elsewhere=True,
            uses_passkeys=passkey is not None,
            action=self._pages.form_action(browser, FACTOR, application),
            form=self._pages.form_of(browser, pending_id, pending, application),
            person=name_of(user),
            passkey=passkey,
            has_authenticator=armed.has_authenticator and step.level != "phr",
            has_recovery_codes=armed.recovery_codes > 0,
            is_recovery=is_recovery,
            **stated(refused),
        )

    async def _armed(self, user_id: str) -> ArmedFactors:
        armed = await self._factors.ask(ReadFactors(user_id=user_id), ArmedFactors)
        return armed if isinstance(armed, ArmedFactors) else ArmedFactors()
