"""Sealing of the requests that one service sends to another over the bus, and of the replies."""

import hashlib
from typing import Final, Generic, TypeVar

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.sealing import NoFittingKeyError, SealingKeys

Q = TypeVar("Q")
A = TypeVar("A")

_FRESH_MS: Final = 30_000
"""How old a request may be, or how far ahead its sender's clock."""


class _Request(msgspec.Struct, frozen=True):
    """A request as it is sealed.

    Attributes:
        sent_at: Milliseconds since the epoch.
    """

    sent_at: int
    question: msgspec.Raw


_encode: Final = msgspec.json.Encoder().encode
_requests: Final = msgspec.json.Decoder(_Request)


class UnreadableMessageError(Exception):
    """A sealed message is not readable: sealed with another key or for another request, altered, or not fresh."""


class SealedRequests(Generic[Q, A]):
    """Seals and opens the requests on one subject, and their replies.

    A request contains the time at which it was sent, so that a captured one is refused later. A reply is sealed for its
    request, so that the reply to another request is refused.

    Args:
        keys: Known to both services.
        subject: Subject of the requests.
        questions: Decodes a request.
        answers: Decodes a reply.
        clock: Clock, for tests.

    Attributes:
        subject: Subject of the requests.
    """

    def __init__(
        self,
        keys: SealingKeys,
        subject: str,
        questions: msgspec.json.Decoder[Q],
        answers: msgspec.json.Decoder[A],
        *,
        clock: Clock = now_ms,
    ) -> None:
        self.subject = subject
        self._keys = keys
        self._questions = questions
        self._answers = answers
        self._clock = clock

    def seal_question(self, question: Q) -> bytes:
        """Return a request as it is sent."""
        request = _Request(self._clock(), msgspec.Raw(_encode(question)))
        return self._keys.seal(_encode(request), name=f"{self.subject}.request")

    def open_question(self, sealed: bytes) -> Q:
        """Return a received request.

        Raises:
            UnreadableMessageError: It is not readable, or was not sent just now.
        """
        try:
            request = _requests.decode(self._keys.open(sealed, name=f"{self.subject}.request"))
            question = self._questions.decode(request.question)
        except (NoFittingKeyError, msgspec.DecodeError) as error:
            raise UnreadableMessageError(type(error).__name__) from None
        age_ms = self._clock() - request.sent_at
        if abs(age_ms) > _FRESH_MS:
            raise UnreadableMessageError(f"sent {age_ms} ms ago: more than {_FRESH_MS // 1000} s, or the clocks differ")
        return question

    def seal_answer(self, answer: A, *, sealed_question: bytes) -> bytes:
        """Return the reply to a request as it is sent."""
        return self._keys.seal(_encode(answer), name=self._reply_name(sealed_question))

    def open_answer(self, sealed: bytes, *, sealed_question: bytes) -> A:
        """Return the received reply to a request.

        Raises:
            UnreadableMessageError: It is not readable.
        """
        try:
            return self._answers.decode(self._keys.open(sealed, name=self._reply_name(sealed_question)))
        except (NoFittingKeyError, msgspec.DecodeError) as error:
            raise UnreadableMessageError(type(error).__name__) from None

    def _reply_name(self, sealed_question: bytes) -> str:
        return f"{self.subject}.answer.{hashlib.sha256(sealed_question).hexdigest()}"
