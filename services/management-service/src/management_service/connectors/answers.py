"""Replies to token-service on the bus, at whose pages people sign in at a provider."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.provider_sign_in import (
    BeginAtProvider,
    FinishAtProvider,
    LinkIdentity,
    NotAccepted,
    ProviderAnswer,
    ProviderQuestion,
    ProviderSignInRequests,
    ProviderUnavailable,
    ReadLogoutToken,
)
from management_service.connectors.id_tokens import NotAcceptableError
from management_service.connectors.provider_sign_ins import NotAcceptedError, ProviderSignIns
from management_service.connectors.providers import ProviderError

_log = get_logger(__name__)

_AT_ONCE: Final = 256
_PROVIDER_RETRY_S: Final = 10


class ProviderSignInAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        sign_ins: Signs people in.
    """

    def __init__(self, requests: ProviderSignInRequests, sign_ins: ProviderSignIns) -> None:
        self._requests = requests
        self._sign_ins = sign_ins

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""
        return sealed_responder(
            bus,
            self._requests,
            self._reply,
            unavailable=ProviderUnavailable(),
            name="provider-sign-in",
            log=_log,
            expected=(SQLAlchemyError, TemporarilyUnavailable, OSError),
            at_once=_AT_ONCE,
        )

    async def _reply(self, question: ProviderQuestion, _: float) -> ProviderAnswer:
        kind, connector_id = type(question).__name__, getattr(question, "connector_id", None)
        try:
            return await self._answer(question)
        except NotAcceptedError as error:
            refused = NotAccepted(error.reason, error.detail)
        except NotAcceptableError as error:
            refused = NotAccepted("token-not-acceptable", str(error))
        except ProviderError as error:
            _log.warning("provider-sign-in.no-answer", kind=kind, connector_id=connector_id, reason=str(error))
            return ProviderUnavailable(_PROVIDER_RETRY_S)
        reason = f"{refused.reason}: {refused.detail}" if refused.detail else refused.reason
        _log.info("provider-sign-in.refused", kind=kind, connector_id=connector_id, reason=reason)
        return refused

    async def _answer(self, question: ProviderQuestion) -> ProviderAnswer:
        match question:
            case BeginAtProvider():
                return await self._sign_ins.begin(question)
            case FinishAtProvider():
                return await self._sign_ins.finish(question)
            case LinkIdentity():
                return await self._sign_ins.link(question)
            case ReadLogoutToken():
                return await self._sign_ins.read_logout(question)
