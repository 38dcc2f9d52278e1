"""Sends sealed requests to another service over the bus, and opens the replies."""

from typing import Any, Generic, Protocol, TypeVar

from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.sealed_requests import SealedRequests, UnreadableMessageError

Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R")

_log = get_logger(__name__)


class _Unavailable(Protocol):
    @property
    def retry_after_s(self) -> int: ...


class SealedQuestions(Generic[Q, R]):
    """Asks another service the questions of one subject.

    Args:
        bus: The connection.
        requests: Seals and opens.
        refused: The reply that is returned in place of any other.
        unavailable: The reply of a service that asks to try again.
        name: Of the spans, and of the event ``<name>.unavailable``.
        timeout_s: Seconds to wait for a reply.
        why: What is logged and raised when there is none: ``no answer about links in mails``.
    """

    def __init__(
        self,
        bus: Bus,
        requests: SealedRequests[Q, Any],
        *,
        refused: type[R],
        unavailable: type[_Unavailable],
        name: str,
        timeout_s: float,
        why: str,
    ) -> None:
        self._bus = bus
        self._requests = requests
        self._refused = refused
        self._unavailable_reply = unavailable
        self._name = name
        self._timeout_s = timeout_s
        self._why = why

    async def ask(self, question: Q, expected: type[A] | tuple[type[A], ...]) -> A | R:
        """Send a request; return the reply, of one of the expected types.

        Raises:
            TemporarilyUnavailable: There is no such reply. What was requested may or may not have happened.
        """
        if not self._bus.is_connected:
            raise self._unavailable()
        sealed = self._requests.seal_question(question)
        try:
            reply = await ask(self._bus, self._requests.subject, sealed, name=self._name, timeout_s=self._timeout_s)
            answer = self._requests.open_answer(reply, sealed_question=sealed)
        except (NatsError, OSError, TimeoutError, UnreadableMessageError) as error:
            _log.warning(f"{self._name}.unavailable", error=type(error).__name__)
            raise self._unavailable() from None
        if isinstance(answer, (expected, self._refused)):
            return answer
        if isinstance(answer, self._unavailable_reply):
            raise self._unavailable(answer.retry_after_s)
        _log.error(f"{self._name}.unavailable", reason="unexpected answer", error=type(answer).__name__)
        raise self._unavailable()

    def _unavailable(self, retry_after_s: int = 1) -> TemporarilyUnavailable:
        return TemporarilyUnavailable(why=self._why, retry_after_s=max(retry_after_s, 1))
