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
    ArmedFactors,
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
from management_service.factors.passkeys import Passkeys
from management_service.factors.rules import FactorRefusedError

_log = get_logger(__name__)

_AT_ONCE: Final = 256


class FactorAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        passkeys: The passkeys.
    """

    def __init__(self, requests: FactorRequests, passkeys: Passkeys) -> None:
        self._requests = requests
        self._passkeys = passkeys

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
                return ArmedFactors(passkeys=await self._passkeys.credential_ids(question.user_id))
            case VerifyPasskey():
                return await self._passkeys.verify(question)
            case BeginPasskey():
                return await self._passkeys.begin(question)
            case (
                AddPasskey()
                | VerifyCode()
                | SendEnrolmentCode()
                | BeginAuthenticator()
                | AddAuthenticator()
                | NewRecoveryCodes()
            ):
                return Refused(reason="off")
