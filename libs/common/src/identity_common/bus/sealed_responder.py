"""Replies to the sealed requests of another service."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.wire.sealed_requests import SealedRequests, UnreadableMessageError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

Q = TypeVar("Q")
A = TypeVar("A")


def sealed_responder(
    bus: Bus,
    requests: SealedRequests[Q, A],
    answer: Callable[[Q, float], Awaitable[A]],
    *,
    unavailable: A,
    name: str,
    log: "FilteringBoundLogger",
    expected: tuple[type[Exception], ...],
    at_once: int,
) -> Responder:
    """Return the responder to the requests on one subject.

    A request that is not readable gets no reply: its sender has other keys and could not read one, or it is too old.

    Args:
        bus: The connection.
        requests: Opens requests and seals replies.
        answer: Returns the reply to a request. Gets the request and when it arrived, in seconds of the monotonic clock.
        unavailable: The reply to a request for which ``answer`` failed.
        name: As for ``Responder``, and of the events ``<name>.unreadable`` and ``<name>.unavailable``.
        log: See ``Responder``.
        expected: See ``Responder``.
        at_once: See ``Responder``.
    """
    unreadable = f"{name}.unreadable"

    def seal_unavailable(request: bytes) -> bytes:
        return requests.seal_answer(unavailable, sealed_question=request)

    async def reply(request: bytes, arrived: float) -> bytes | None:
        try:
            question = requests.open_question(request)
        except UnreadableMessageError as error:
            reason = str(error)
        else:
            return requests.seal_answer(await answer(question, arrived), sealed_question=request)
        log.error(unreadable, reason=reason)
        return None

    return Responder(
        bus,
        requests.subject,
        reply,
        unavailable=seal_unavailable,
        name=name,
        log=log,
        failed=f"{name}.unavailable",
        expected=expected,
        at_once=at_once,
    )
