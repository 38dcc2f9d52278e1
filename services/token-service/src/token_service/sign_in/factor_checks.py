"""Checks a passkey or a code: the limit of the address, the challenge, management-service's verdict."""

from typing import Final

from identity_common.failures import TemporarilyUnavailable
from identity_common.wire.account_links import Visitor
from identity_common.wire.factors import FactorAccepted, VerifyCode, VerifyPasskey
from token_service.audit import Origin
from token_service.sign_in.attempts import Attempts, Problem, SignInRefused, too_many_attempts
from token_service.sign_in.challenges import Challenges
from token_service.sign_in.devices import Devices
from token_service.sign_in.factors import Factors

_MAX_CREDENTIAL: Final = 64 * 1024


class FactorChecks:
    """Checks the factors that a browser sends.

    Args:
        factors: management-service's operations.
        challenges: Of the pages.
        attempts: Limits and records attempts.
        devices: Tells the users that a browser is known to.
    """

    def __init__(self, factors: Factors, challenges: Challenges, attempts: Attempts, devices: Devices) -> None:
        self._factors = factors
        self._challenges = challenges
        self._attempts = attempts
        self._devices = devices

    async def passkey(
        self,
        pending_id: str,
        credential: str,
        *,
        user_id: str | None,
        origin: Origin,
        client_id: str,
        link: str | None = None,
    ) -> FactorAccepted:
        """Check the browser's response to the challenge of a page, which is spent.

        Args:
            pending_id: The pending request of the page.
            credential: JSON, as sent.
            user_id: The user that must own the passkey; None: it says who signs in.
            origin: Where the request came from.
            client_id: The application to continue to, for the log.
            link: That of an identity at a provider which the sign-in is to confirm, if there is one.

        Raises:
            SignInRefused: It is not acceptable, there were too many attempts, or nothing answers.
        """
        await self._attempts.count(origin, client_id)
        challenge = await self._challenges.take(pending_id, user_id=user_id)
        if challenge is None or not credential or len(credential) > _MAX_CREDENTIAL:
            self._attempts.refused("wrong-passkey", origin, client_id, user_id=user_id)
            raise SignInRefused("wrong-passkey")
        question = VerifyPasskey(
            challenge=challenge,
            credential=credential,
            user_id=user_id,
            rp_id=self._challenges.rp_id,
            visitor=visitor_of(origin),
            link=link,
        )
        return await self._verdict(question, "wrong-passkey", user_id, origin, client_id)

    async def code(
        self,
        user_id: str,
        code: str,
        *,
        language: str,
        origin: Origin,
        device_cookie: str | None,
        client_id: str,
    ) -> FactorAccepted:
        """Check a code of the authenticator app, or a recovery code, which is spent.

        Args:
            user_id: The user, whose sign-in has begun.
            code: As typed.
            language: Of the page, for mail.
            origin: Where the request came from.
            device_cookie: The device cookie that the browser sent.
            client_id: The application to continue to, for the log and mail.

        Raises:
            SignInRefused: It is wrong, there were too many attempts, or nothing answers.
        """
        if not code.strip():
            raise SignInRefused("wrong-code")
        await self._attempts.count(origin, client_id)
        devices = self._devices.read(device_cookie)
        question = VerifyCode(
            user_id=user_id,
            code=code,
            devices=devices,
            language=language,
            application_id=client_id,
            visitor=visitor_of(origin),
        )
        return await self._verdict(question, "wrong-code", user_id, origin, client_id)

    async def _verdict(
        self,
        question: VerifyPasskey | VerifyCode,
        outcome: Problem,
        user_id: str | None,
        origin: Origin,
        client_id: str,
    ) -> FactorAccepted:
        try:
            answer = await self._factors.ask(question, FactorAccepted)
        except TemporarilyUnavailable as unavailable:
            raise await self._attempts.unavailable(origin, unavailable.retry_after_s) from None
        if isinstance(answer, FactorAccepted):
            self._attempts.forgive(origin)  # travels with what continues the session
            return answer
        if answer.reason == "throttled":
            self._attempts.refused("throttled-account", origin, client_id, user_id=user_id)
            raise too_many_attempts(answer.retry_after_s)
        self._attempts.refused(outcome, origin, client_id, user_id=user_id)
        raise SignInRefused(outcome)


def visitor_of(origin: Origin) -> Visitor:
    """Return a browser as management-service records it."""
    return Visitor(address=origin.address, user_agent=origin.user_agent)
