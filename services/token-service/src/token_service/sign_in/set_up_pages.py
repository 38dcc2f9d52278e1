"""The pages where a signed-in user sets up a factor: a passkey, an authenticator app, recovery codes.

A request leads here if it demands more than the user has set up, or names an action. Who may set up a factor,
management-service decides; this service vouches for the sign-in.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from identity_common.clock import Clock, now_ms
from identity_common.http.layers.head import UNSAFE_GET
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.events import ApplicationState
from identity_common.wire.factors import (
    AddAuthenticator,
    AddPasskey,
    ArmedFactors,
    AuthenticatorBegun,
    BeginAuthenticator,
    BeginPasskey,
    CodeSent,
    FactorAdded,
    NewRecoveryCodes,
    PasskeyBegun,
    ReadFactors,
    RecoveryCodes,
    Refused,
    SendEnrolmentCode,
)
from token_service.sign_in.attempts import Attempts
from token_service.sign_in.challenges import Challenges
from token_service.sign_in.factor_checks import visitor_of
from token_service.sign_in.factors import Factors
from token_service.sign_in.pages.browser import Browser, redirect
from token_service.sign_in.pages.consent import name_of
from token_service.sign_in.pages.cookies import of_sign_in
from token_service.sign_in.pages.problems import PROBLEMS, AnyRequest
from token_service.sign_in.pages.views import page
from token_service.sign_in.pending import Pending
from token_service.sign_in.pending_pages import SET_UP, SIGN_IN, Answer, PendingPages, stated
from token_service.sign_in.request import Action, Parameters
from token_service.sign_in.sign_ins import SignIns
from token_service.sign_in.steps import NeedsAction, NeedsEnrolment, NeedsSignIn

_CODE: Final = f"{SET_UP}/code"
_PASSKEY: Final = f"{SET_UP}/passkey"
_AUTHENTICATOR: Final = f"{SET_UP}/authenticator"
_RECOVERY_CODES: Final = f"{SET_UP}/recovery-codes"
_OF_ACTION: Final[dict[Action, str]] = {
    "add-passkey": _PASSKEY,
    "add-authenticator": _AUTHENTICATOR,
    "new-recovery-codes": _RECOVERY_CODES,
}
_MINUTES: Final = re.compile("[1-9][0-9]{0,2}", re.ASCII)

Needed = NeedsEnrolment | NeedsAction
_NEEDED: Final[tuple[type[Needed], ...]] = (NeedsEnrolment, NeedsAction)


class Enrolment(msgspec.Struct, frozen=True):
    """What a page says about the code for setting up a first factor.

    Attributes:
        action: Where the form that has a code mailed is sent.
        page: The page to return to.
        masked_email: Where a code can be mailed to, if anywhere.
        sent_minutes: How long the code is valid that was just mailed; 0 if none was.
    """

    action: str
    page: str
    masked_email: str | None
    sent_minutes: int


class Visit(msgspec.Struct, frozen=True):
    """A user at one of the pages.

    Attributes:
        browser: The browser.
        pending_id: The request's id.
        pending: The request.
        application: Its client.
        step: What the request needs.
    """

    browser: Browser
    pending_id: str
    pending: Pending
    application: ApplicationState
    step: Needed

    @property
    def user_id(self) -> str:
        """The user."""
        return self.step.who.person.user.id


class SetUpPages:
    """Sets up factors.

    Args:
        pages: What the pages of a pending request have in common.
        factors: management-service's operations.
        challenges: For passkeys.
        sign_ins: Continues the session with the new factor.
        attempts: Records wrong enrolment codes.
        limit: Limits what an address may try and have mailed.
        rp_name: How authenticators call this system.
    """

    def __init__(
        self,
        pages: PendingPages,
        factors: Factors,
        challenges: Challenges,
        sign_ins: SignIns,
        attempts: Attempts,
        limit: SourceLimit,
        *,
        rp_name: str,
        clock: Clock = now_ms,
    ) -> None:
        self._pages = pages
        self._factors = factors
        self._challenges = challenges
        self._sign_ins = sign_ins
        self._attempts = attempts
        self._limit = limit
        self._rp_name = rp_name
        self._clock = clock

    def routes(self) -> list[HTTPRouteHandler]:
        """Return the routes."""

        @get(
            [SET_UP, _PASSKEY, _AUTHENTICATOR, _RECOVERY_CODES],
            include_in_schema=False,
            exception_handlers=PROBLEMS,
            opt=UNSAFE_GET,
        )
        async def show(request: AnyRequest) -> Answer:
            browser = self._pages.browser(request)
            pending_id = browser.query().get("request") or ""
            pending = await self._pages.find(browser, pending_id)
            visit = await self._visit(browser, pending_id, pending)
            return await self._show(visit, request.url.path) if isinstance(visit, Visit) else visit

        return [
            show,
            self._form_route(_CODE, self._send_code),
            self._form_route(_PASSKEY, self._add_passkey),
            self._form_route(_AUTHENTICATOR, self._add_authenticator),
            self._form_route(_RECOVERY_CODES, self._make_recovery_codes),
        ]

    def _form_route(self, path: str, handle: Callable[[Visit, Parameters], Awaitable[Answer]]) -> HTTPRouteHandler:
        async def posted(browser: Browser, form: Parameters) -> Answer:
            pending_id, pending = await self._pages.posted(browser, form)
            visit = await self._visit(browser, pending_id, pending)
            return await handle(visit, form) if isinstance(visit, Visit) else visit

        return self._pages.form_route(path, posted)

    async def _visit(self, browser: Browser, pending_id: str, pending: Pending) -> Visit | Answer:
        """Return the user at a page, or the response that leads to what the request needs before."""
        step = await self._pages.needed(browser, pending_id, pending, _NEEDED)
        if not isinstance(step, Needed):
            return step
        return Visit(browser, pending_id, pending, await self._pages.application(pending), step)

    async def _show(self, visit: Visit, path: str) -> Answer:
        """Show the page that was opened, or the one that the request's action needs."""
        if isinstance(visit.step, NeedsAction):
            path = _OF_ACTION[visit.step.action]
        if path == _PASSKEY:
            return await self._passkey_page(visit)
        if path == _AUTHENTICATOR:
            return await self._authenticator_page(visit)
        if path == _RECOVERY_CODES and isinstance(visit.step, NeedsAction):
            return self._new_recovery_codes_page(visit)
        return await self._choice_page(visit)

    async def _send_code(self, visit: Visit, form: Parameters) -> Answer:
        """Have a code mailed, and lead back to the page."""
        path = next((each for each in (_PASSKEY, _AUTHENTICATOR) if each == form.get("page")), SET_UP)
        throttled = await self._limit.count(visit.browser.address)
        if throttled is not None:
            return await self._choice_page(visit, Refused(reason="throttled", retry_after_s=throttled.wait_s))
        question = SendEnrolmentCode(
            user_id=visit.user_id,
            language=visit.browser.language(visit.browser.query()),
            application_id=visit.application.id,
            visitor=visitor_of(visit.browser.origin),
        )
        answer = await self._factors.ask(question, CodeSent)
        if isinstance(answer, Refused):
            return await self._refused(visit, answer) or await self._choice_page(visit, answer)
        return redirect(self._address(visit, path, sent=str(answer.minutes)))

    async def _add_passkey(self, visit: Visit, form: Parameters) -> Answer:
        challenge = await self._challenges.take(visit.pending_id, user_id=visit.user_id)
        name, credential, typed = (form.get(field) or "" for field in ("name", "credential", "enrolment_code"))
        answer: FactorAdded | Refused = Refused(reason="not-accepted")
        if challenge is not None and credential:
            question = AddPasskey(
                user_id=visit.user_id,
                challenge=challenge,
                credential=credential,
                name=name.strip(),
                signed_in=visit.step.who.session.authentication,
                code=typed,
                language=visit.browser.language(visit.browser.query()),
                application_id=visit.application.id,
                visitor=visitor_of(visit.browser.origin),
            )
            answer = await self._add(visit, question)
        if isinstance(answer, Refused):
            return await self._refused(visit, answer) or await self._passkey_page(visit, answer, name=name, typed=typed)
        return await self._added(visit, answer)

    async def _add_authenticator(self, visit: Visit, form: Parameters) -> Answer:
        sealed, typed = (form.get(field) or "" for field in ("sealed", "enrolment_code"))
        question = AddAuthenticator(
            user_id=visit.user_id,
            sealed=sealed,
            current=form.get("current") or "",
            signed_in=visit.step.who.session.authentication,
            code=typed,
            language=visit.browser.language(visit.browser.query()),
            application_id=visit.application.id,
            visitor=visitor_of(visit.browser.origin),
        )
        answer = await self._add(visit, question)
        if isinstance(answer, Refused):
            shown = await self._refused(visit, answer)
            return shown or await self._authenticator_page(visit, answer, sealed=sealed, typed=typed)
        return await self._added(visit, answer)

    async def _add(self, visit: Visit, question: AddPasskey | AddAuthenticator) -> FactorAdded | Refused:
        """Ask management-service to store a factor; an address may try wrong codes so often only."""
        address = visit.browser.address
        throttled = await self._limit.count(address)
        if throttled is not None:
            return Refused(reason="throttled", retry_after_s=throttled.wait_s)
        answer = await self._factors.ask(question, FactorAdded)
        if isinstance(answer, FactorAdded):
            await self._limit.forgive(address)
        elif answer.reason == "wrong-enrolment-code":
            self._attempts.refused(answer.reason, visit.browser.origin, visit.application.id, user_id=visit.user_id)
        return answer

    async def _added(self, visit: Visit, added: FactorAdded) -> Answer:
        """Continue the session with the new factor; show the recovery codes of a first one, this once."""
        browser, pending = visit.browser, await self._finish_action(visit)
        begun = await self._sign_ins.add_factor(
            visit.step.who,
            added.method,
            revision=added.revision,
            origin=browser.origin,
            device_cookie=browser.device_cookie,
            client_id=visit.application.id,
        )
        cookies = of_sign_in(begun, self._pages.cookies) if begun else []
        if added.recovery_codes:
            shown = self._recovery_codes_page(visit, added.recovery_codes)
            shown.cookies.extend(cookies)
            return shown
        who = begun.who if begun else None  # another request of the browser was faster: its cookie counts
        if who is None:
            return redirect(self._address(visit, SIGN_IN))
        return await self._pages.resume(browser, visit.pending_id, pending, who, cookies=cookies)

    async def _make_recovery_codes(self, visit: Visit, _: Parameters) -> Answer:
        question = NewRecoveryCodes(
            user_id=visit.user_id,
            signed_in=visit.step.who.session.authentication,
            language=visit.browser.language(visit.browser.query()),
            application_id=visit.application.id,
            visitor=visitor_of(visit.browser.origin),
        )
        answer = await self._factors.ask(question, RecoveryCodes)
        if isinstance(answer, Refused):
            return await self._refused(visit, answer) or self._new_recovery_codes_page(visit, answer)
        await self._finish_action(visit)
        return self._recovery_codes_page(visit, answer.codes)

    async def _finish_action(self, visit: Visit) -> Pending:
        if isinstance(visit.step, NeedsEnrolment):
            return visit.pending
        return await self._pages.pending.finish_action(visit.pending_id, visit.pending)

    async def _refused(self, visit: Visit, refused: Refused) -> Answer | None:
        """Lead to the sign-in if that is what a refusal asks for; otherwise the page states the problem."""
        if refused.reason != "sign-in-again":
            return None
        await self._pages.pending.require_sign_in(visit.pending_id, visit.pending, now=self._clock())
        return redirect(self._pages.next(visit.browser, NeedsSignIn(), visit.pending_id))

    async def _choice_page(self, visit: Visit, refused: Refused | None = None) -> Answer:
        armed = await self._armed(visit)
        demands_passkey = isinstance(visit.step, NeedsEnrolment) and visit.step.level == "phr"
        return self._page(
            "set_up.html",
            visit,
            refused,
            enrolment=self._enrolment(visit, armed, SET_UP),
            passkey_page=self._way(visit, _PASSKEY) if self._challenges.are_possible else None,
            authenticator_page=None if demands_passkey else self._way(visit, _AUTHENTICATOR),
        )

    async def _passkey_page(
        self, visit: Visit, refused: Refused | None = None, *, name: str = "", typed: str = ""
    ) -> Answer:
        begun = await self._factors.ask(BeginPasskey(user_id=visit.user_id, rp_id=self._challenges.rp_id), PasskeyBegun)
        if isinstance(begun, Refused):
            return await self._refused(visit, begun) or await self._choice_page(visit, begun)
        action = self._pages.form_action(visit.browser, _PASSKEY, visit.application)
        ceremony = await self._challenges.begin(
            visit.pending_id, user_id=visit.user_id, action=action, credentials=begun.existing
        )
        if ceremony is None:
            return await self._choice_page(visit, Refused(reason="off"))
        armed = await self._armed(visit)
        return self._page(
            "set_up_passkey.html",
            visit,
            refused,
            uses_passkeys=True,
            action=action,
            passkey=ceremony,
            rp_name=self._rp_name,
            user=begun,
            name=name,
            typed=_kept(typed, refused),
            enrolment=self._enrolment(visit, armed, _PASSKEY),
            other_ways=self._other_ways(visit),
        )

    async def _authenticator_page(
        self, visit: Visit, refused: Refused | None = None, *, sealed: str = "", typed: str = ""
    ) -> Answer:
        """Show the page, with the secret of an earlier one or a new one."""
        secret, picture = "", ""
        if not sealed or (refused is not None and refused.reason == "not-accepted"):
            begun = await self._factors.ask(BeginAuthenticator(user_id=visit.user_id), AuthenticatorBegun)
            if isinstance(begun, Refused):
                return await self._refused(visit, begun) or await self._choice_page(visit, begun)
            sealed, secret, picture = begun.sealed, begun.secret, begun.picture
        armed = await self._armed(visit)
        return self._page(
            "set_up_authenticator.html",
            visit,
            refused,
            action=self._pages.form_action(visit.browser, _AUTHENTICATOR, visit.application),
            sealed=sealed,
            secret=secret,
            picture=picture,
            again=self._way(visit, _AUTHENTICATOR),
            typed=_kept(typed, refused),
            enrolment=self._enrolment(visit, armed, _AUTHENTICATOR),
            other_ways=self._other_ways(visit),
        )

    def _new_recovery_codes_page(self, visit: Visit, refused: Refused | None = None) -> Answer:
        action = self._pages.form_action(visit.browser, _RECOVERY_CODES, visit.application)
        return self._page("new_recovery_codes.html", visit, refused, action=action)

    def _recovery_codes_page(self, visit: Visit, codes: tuple[str, ...]) -> Answer:
        return page(
            "recovery_codes.html",
            visit.browser.language(visit.browser.query()),
            application=visit.application,
            codes=codes,
            file="data:text/plain;charset=utf-8," + quote("\r\n".join(codes) + "\r\n"),
            next=self._address(visit, SIGN_IN),
        )

    def _page(self, template: str, visit: Visit, refused: Refused | None, **values: Any) -> Answer:
        browser = visit.browser
        return page(
            template,
            browser.language(browser.query()),
            application=visit.application,
            leads_elsewhere=True,
            form=self._pages.form_of(browser, visit.pending_id, visit.pending, visit.application),
            person=name_of(visit.step.who.person.user),
            **stated(refused),
            **values,
        )

    async def _armed(self, visit: Visit) -> ArmedFactors:
        armed = await self._factors.ask(ReadFactors(user_id=visit.user_id), ArmedFactors)
        return armed if isinstance(armed, ArmedFactors) else ArmedFactors()

    def _enrolment(self, visit: Visit, armed: ArmedFactors, path: str) -> Enrolment | None:
        if armed.passkeys or armed.has_authenticator or not armed.needs_code:
            return None
        return Enrolment(
            action=self._pages.form_action(visit.browser, _CODE, visit.application),
            page=path,
            masked_email=armed.masked_email,
            sent_minutes=int(_sent(visit) or "0"),
        )

    def _other_ways(self, visit: Visit) -> str | None:
        return self._way(visit, SET_UP) if isinstance(visit.step, NeedsEnrolment) else None

    def _way(self, visit: Visit, path: str) -> str:
        """Return the address of another of the pages, which says as well that a code was mailed."""
        sent = _sent(visit)
        return self._address(visit, path, sent=sent) if sent else self._address(visit, path)

    def _address(self, visit: Visit, path: str, **more: str) -> str:
        return self._pages.address(visit.browser, path, visit.pending_id, **more)


def _kept(code: str, refused: Refused | None) -> str:
    """Return an enrolment code that was typed, unless it is what was wrong."""
    return "" if refused is not None and refused.reason == "wrong-enrolment-code" else code


def _sent(visit: Visit) -> str:
    """Return how many minutes the code is valid that was just mailed; empty if none was."""
    sent = visit.browser.query().get("sent") or ""
    return sent if _MINUTES.fullmatch(sent) else ""
