"""Replies to token-service on the bus, which asks about factors."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import (
    AddAuthenticator,
    AddPasskey,
    Answer,
    BeginAuthenticator,
    BeginPasskey,
    FactorRequests,
    NewRecoveryCodes,
    Question,
    ReadFactors,
    Refused,
    SendEnrolmentCode,
    Unavailable,
    VerifyCode,
    VerifyPasskey,
)
from management_service.factors.authenticators import Authenticators
from management_service.factors.codes import is_recovery_code
from management_service.factors.enrolments import Enrolments
from management_service.factors.passkeys import Passkeys
from management_service.factors.recovery_codes import RecoveryCodes
from management_service.factors.rules import FactorRefusedError

_log = get_logger(__name__)

_AT_ONCE: Final = 256


class FactorAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        passkeys: The passkeys.
        authenticators: The authenticator apps.
        recovery_codes: The recovery codes.
        enrolments: Lets users set up a first factor.
    """

    def __init__(
        self,
        requests: FactorRequests,
        passkeys: Passkeys,
        authenticators: Authenticators,
        recovery_codes: RecoveryCodes,
        enrolments: Enrolments,
    ) -> None:
        self._requests = requests
        self._passkeys = passkeys
        self._authenticators = authenticators
        self._recovery_codes = recovery_codes
        self._enrolments = enrolments

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""
        return sealed_responder(
            bus,
            self._requests,
            self._reply,
            unavailable=Unavailable(),
            name="factors",
            log=_log,
            expected=(SQLAlchemyError, TemporarilyUnavailable, OSError),
            at_once=_AT_ONCE,
        )

    async def _reply(self, question: Question, _: float) -> Answer:
        try:
            return await self._answer(question)
        except FactorRefusedError as refused:
            _log.info("factors.refused", kind=type(question).__name__, reason=refused.reason)
            return Refused(reason=refused.reason, retry_after_s=refused.retry_after_s)

    async def _answer(self, question: Question) -> Answer:
        match question:
            case ReadFactors():
                return await self._enrolments.read(question.user_id)
            case VerifyPasskey():
                return await self._passkeys.verify(question)
            case VerifyCode():
                return await self._verify_code(question)
            case SendEnrolmentCode():
                return await self._enrolments.send_code(question)
            case BeginPasskey():
                return await self._passkeys.begin(question)
            case AddPasskey():
                return await self._passkeys.add(question)
            case BeginAuthenticator():
                return await self._authenticators.begin(question)
            case AddAuthenticator():
                return await self._authenticators.add(question)
            case NewRecoveryCodes():
                return await self._recovery_codes.renew(question)

    async def _verify_code(self, question: VerifyCode) -> Answer:
        """Verify a code of either kind: they differ in length, so people need not say which one it is."""
        if is_recovery_code(question.code):
            return await self._recovery_codes.spend(question)
        return await self._authenticators.verify(question)
