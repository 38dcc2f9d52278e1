"""Asks management-service about links in mails, over the bus."""

from typing import TypeVar

from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import (
    REPLY_TIMEOUT_S,
    AccountLinkRequests,
    Answer,
    Question,
    Refused,
    Unavailable,
)
from identity_common.wire.sealed_requests import UnreadableMessageError

A = TypeVar("A", bound=Answer)

_log = get_logger(__name__)


class AccountLinks:
    """management-service's operations on links in mails."""

    def __init__(self, bus: Bus, requests: AccountLinkRequests) -> None:
        self._bus = bus
        self._requests = requests

    async def ask(self, question: Question, expected: type[A]) -> A | Refused:
        """Send a request; return the reply.

        Raises:
            TemporarilyUnavailable: There is no such reply. What was requested may or may not have happened.
        """
        if not self._bus.is_connected:
            raise _unavailable()
        sealed = self._requests.seal_question(question)
        try:
            reply = await ask(
                self._bus, self._requests.subject, sealed, name="account-links", timeout_s=REPLY_TIMEOUT_S
            )
            answer = self._requests.open_answer(reply, sealed_question=sealed)
        except (NatsError, OSError, TimeoutError, UnreadableMessageError) as error:
            _log.warning("account-links.unavailable", error=type(error).__name__)
            raise _unavailable() from None
        if isinstance(answer, (expected, Refused)):
            return answer
        if isinstance(answer, Unavailable):
            raise _unavailable(answer.retry_after_s)
        _log.error("account-links.unavailable", reason="unexpected answer", error=type(answer).__name__)
        raise _unavailable()


def _unavailable(retry_after_s: int = 1) -> TemporarilyUnavailable:
    return TemporarilyUnavailable(why="no answer about links in mails", retry_after_s=max(retry_after_s, 1))
