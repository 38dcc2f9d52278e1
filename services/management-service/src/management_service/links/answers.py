"""Replies to token-service on the bus, which asks about links in mails."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import (
    AccountLinkRequests,
    Answer,
    Offers,
    Question,
    ReadOffers,
    Unavailable,
)
from identity_common.wire.sealed_requests import UnreadableMessageError

_log = get_logger(__name__)

_AT_ONCE: Final = 256


class AccountLinkAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        is_mail_sent: Whether this deployment sends mail.
    """

    def __init__(self, requests: AccountLinkRequests, *, is_mail_sent: bool) -> None:
        self._requests = requests
        self._is_mail_sent = is_mail_sent

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""

        def unavailable(request: bytes) -> bytes:
            return self._requests.seal_answer(Unavailable(), sealed_question=request)

        return Responder(
            bus,
            self._requests.subject,
            self._reply,
            unavailable=unavailable,
            name="account-links",
            log=_log,
            failed="account-links.unavailable",
            expected=(SQLAlchemyError, TemporarilyUnavailable, OSError),
            at_once=_AT_ONCE,
        )

    async def answer(self, question: Question) -> Answer:
        """Return the reply to a request.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, StoreUnavailable, OSError: A store does not answer.
        """
        match question:
            case ReadOffers():
                return Offers(is_mail_sent=self._is_mail_sent)

    async def _reply(self, request: bytes, _: float) -> bytes | None:
        try:
            question = self._requests.open_question(request)
        except UnreadableMessageError as error:
            _log.error("account-links.unreadable", reason=str(error))
            return None  # the sender has other keys and could not read the reply, or the request is too old
        return self._requests.seal_answer(await self.answer(question), sealed_question=request)
