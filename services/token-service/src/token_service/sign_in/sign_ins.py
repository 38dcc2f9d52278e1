"""Signing in: throttle and check of a password, the session that a first factor begins and others continue."""

import msgspec

from identity_common.authentication import AtProvider, FactorMethod
from identity_common.clock import Clock, now_ms
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import ArmedFactors
from token_service.audit import Origin, TokenAudit
from token_service.sign_in.attempts import Attempts, SignInRefused, too_many_attempts
from token_service.sign_in.devices import Devices
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.passwords import PasswordCheck, PasswordsUnavailable
from token_service.sign_in.pending import PendingLink
from token_service.sign_in.sessions import Session, Sessions, SignInEndedError
from token_service.sign_in.steps import SignedIn

_log = get_logger(__name__)


class Begun(msgspec.Struct, frozen=True):
    """A sign-in that succeeded.

    Attributes:
        session_cookie: The session's cookie, with its new secret.
        max_age_s: How long the browser keeps this cookie; None: until it is closed.
        device_cookie: Makes the browser known to the account; None before the user has used as many factors as each of
            their sign-ins needs: attempts of one who knows the password alone are not counted apart.
        who: The user.
        factors: What the user has set up, if the check of the password has told.
    """

    session_cookie: str
    max_age_s: int | None
    device_cookie: str | None
    who: SignedIn
    factors: ArmedFactors | None = None

    def __repr__(self) -> str:
        """Hide the cookies."""
        return "Begun(…)"


class SignIns:
    """Signs users in at a browser."""

    def __init__(
        self,
        flow: SignInFlow,
        sessions: Sessions,
        passwords: PasswordCheck,
        attempts: Attempts,
        devices: Devices,
        audit: TokenAudit,
        *,
        clock: Clock = now_ms,
    ) -> None:
        self._audit = audit
        self._flow = flow
        self._sessions = sessions
        self._passwords = passwords
        self._attempts = attempts
        self._devices = devices
        self._clock = clock

    async def sign_in(
        self,
        identifier: str,
        password: str,
        *,
        origin: Origin,
        session_cookie: str | None,
        device_cookie: str | None,
        client_id: str,
        is_remembered: bool,
        link: PendingLink | None = None,
    ) -> Begun:
        """Begin a session, or continue the browser's own under a new secret.

        Args:
            identifier: User name, e-mail address or phone number.
            password: As typed.
            origin: Where the request came from.
            session_cookie: The session cookie that the browser sent.
            device_cookie: The device cookie that the browser sent.
            client_id: The application to continue to, for the log.
            is_remembered: Whether the session outlives the browser's session.
            link: The identity at a provider that the sign-in is to confirm.

        Raises:
            SignInRefused: Wrong password, too many attempts, a user who may not sign in, or the password cannot be
                checked.
        """
        if not identifier or not password:
            raise SignInRefused("incomplete")
        await self._attempts.count(origin, client_id)
        devices = self._devices.read(device_cookie)
        judged_at = self._clock()
        try:
            known = await self._passwords.check(
                identifier, password, devices, address=origin.address, link=link.link if link else None
            )
        except PasswordsUnavailable as unavailable:
            raise await self._attempts.unavailable(origin, unavailable.retry_after_s) from None
        if known.retry_after_s:  # still counted for the address, which bounds attempts at a locked account too
            self._attempts.refused("throttled-account", origin, client_id)
            raise too_many_attempts(known.retry_after_s)
        if known.user_id is None:
            self._attempts.refused("wrong-password", origin, client_id)
            raise SignInRefused("wrong")
        self._attempts.forgive(origin)  # travels with what begins the session
        begun = await self.begin(
            known.user_id,
            judged_at=judged_at,
            tokens_valid_after=known.tokens_valid_after,
            revision=known.revision,
            origin=origin,
            session_cookie=session_cookie,
            device_cookie=device_cookie,
            client_id=client_id,
            is_remembered=is_remembered,
            provider=linked_to(link, judged_at),
        )
        return msgspec.structs.replace(begun, factors=known.factors)

    async def begin(
        self,
        user_id: str,
        *,
        judged_at: int,
        tokens_valid_after: int,
        revision: int,
        origin: Origin,
        session_cookie: str | None,
        device_cookie: str | None,
        client_id: str,
        is_remembered: bool = False,
        method: FactorMethod = "password",
        provider: AtProvider | None = None,
    ) -> Begun:
        """Begin a session of a user who has just used a first factor; see ``sign_in``.

        Args:
            user_id: The user.
            judged_at: The clock, read before the factor was judged.
            tokens_valid_after: The user's, milliseconds since the epoch.
            revision: Management's revision that the user's records must include.
            origin: Where the request came from.
            session_cookie: The session cookie that the browser sent.
            device_cookie: The device cookie that the browser sent.
            client_id: The application to continue to, for the log.
            is_remembered: Whether the session outlives the browser's session.
            method: The factor: a password, typed or just chosen, a passkey, or a provider.
            provider: What the provider said, if it was one; or the result of ``linked_to``.

        Raises:
            SignInRefused: The user may not sign in, or the sign-in at the provider has ended.
        """
        earlier = await self._sessions.find(session_cookie)
        try:
            new_cookie, session = await self._sessions.sign_in(
                user_id,
                judged_at=judged_at,
                tokens_valid_after=tokens_valid_after,
                earlier=earlier,
                is_remembered=is_remembered,
                address=origin.address,
                user_agent=origin.user_agent,
                method=method,
                provider=provider,
            )
        except SignInEndedError:
            raise self._ended_there(user_id, provider, origin, client_id) from None
        who = await self._flow.live(session, revision=revision)
        if who is None:
            raise await self._not_allowed(session, origin, client_id)
        if earlier is not None and earlier.id != session.id:  # another user was signed in at this browser
            await self._flow.sign_out(earlier)
            self._audit.signed_out(earlier.user_id, client_id=client_id, origin=origin)
        self._attempts.succeeded()
        self._audit.signed_in(
            user_id,
            client_id=client_id,
            origin=origin,
            amr=session.authentication.amr,
            connector_id=provider.connector_id if provider else None,
        )
        _log.info("sign-in.succeeded", user_id=user_id, client_id=client_id)
        return self._begun(new_cookie, who, device_cookie)

    async def add_factor(
        self,
        who: SignedIn,
        method: FactorMethod,
        *,
        revision: int,
        origin: Origin,
        device_cookie: str | None,
        client_id: str,
        provider: AtProvider | None = None,
        tokens_valid_after: int = 0,
    ) -> Begun | None:
        """Continue the session of a user who has just used another factor, or set it up, under a new secret.

        None if the session has ended or changed meanwhile: the browser may have sent two requests.

        Args:
            who: The user, as of this request.
            method: The factor.
            revision: Management's revision that the user's records must include.
            origin: Where the request came from.
            device_cookie: The device cookie that the browser sent.
            client_id: The application to continue to, for the log.
            provider: What the provider said, if the factor is one: its identity has just been linked.
            tokens_valid_after: The user's, if linking has changed it, milliseconds since the epoch.

        Raises:
            SignInRefused: The user may not sign in any more.
        """
        added = await self._sessions.add_factor(
            who.session, method, provider=provider, tokens_valid_after=tokens_valid_after
        )
        if added is None:
            return None
        new_cookie, session = added
        known = await self._flow.live(session, revision=max(revision, who.revision))
        if known is None:
            raise await self._not_allowed(session, origin, client_id)
        self._audit.factor_used(
            session.user_id,
            client_id=client_id,
            origin=origin,
            amr=session.authentication.amr,
            connector_id=provider.connector_id if provider else None,
        )
        _log.info("sign-in.factor-added", user_id=session.user_id, method=method, client_id=client_id)
        return self._begun(new_cookie, known, device_cookie)

    def _begun(self, session_cookie: str, who: SignedIn, device_cookie: str | None) -> Begun:
        session, user = who.session, who.person.user
        known_device = None
        if self._flow.is_usual(who):
            devices = self._devices.read(device_cookie)
            known_device = self._devices.write(devices, user.id, tokens_valid_after=user.tokens_valid_after)
        max_age_s = -((self._clock() - session.expires_at) // 1000) if session.is_remembered else None
        return Begun(session_cookie, max_age_s, known_device, who)

    def _ended_there(self, user_id: str, provider: AtProvider | None, origin: Origin, client_id: str) -> SignInRefused:
        connector_id = provider.connector_id if provider else None
        self._attempts.refused(
            "provider-refused", origin, client_id, user_id=user_id, connector_id=connector_id, reason="provider-ended"
        )
        return SignInRefused("provider-ended")

    async def _not_allowed(self, session: Session, origin: Origin, client_id: str) -> SignInRefused:
        """End the session of a user who may not sign in, and return the refusal."""
        await self._flow.sign_out(session)
        self._attempts.refused("not-allowed", origin, client_id, user_id=session.user_id)
        return SignInRefused("blocked")


def linked_to(link: PendingLink | None, signed_in_at: int) -> AtProvider | None:
    """Return what ties a sign-in to the connector whose identity it confirms, so that it ends with the connector."""
    if link is None:
        return None
    return AtProvider(connector_id=link.connector_id, revision=0, auth_time=signed_in_at)
