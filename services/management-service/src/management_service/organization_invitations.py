"""Asks template-service, which owns the invitations to organizations, about their links, by request on the bus."""

import hashlib
from typing import TypeVar

from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import ask
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.organization_invitations import (
    REPLY_TIMEOUT_S,
    Answer,
    OrganizationInvitationRequests,
    Question,
    Refused,
)
from identity_common.wire.sealed_requests import UnreadableMessageError

A = TypeVar("A", bound=Answer)

_log = get_logger(__name__)


def link_sha256(link: str) -> str:
    """Return what template-service stores of a link."""
    return hashlib.sha256(link.encode()).hexdigest()


class OrganizationInvitations:
    """template-service's operations on links of invitations."""

    def __init__(self, bus: Bus, requests: OrganizationInvitationRequests) -> None:
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
                self._bus, self._requests.subject, sealed, name="organization-invitations", timeout_s=REPLY_TIMEOUT_S
            )
            answer = self._requests.open_answer(reply, sealed_question=sealed)
        except (NatsError, OSError, TimeoutError, UnreadableMessageError) as error:
            _log.warning("organization-invitations.unavailable", error=type(error).__name__)
            raise _unavailable() from None
        if isinstance(answer, (expected, Refused)):
            return answer
        raise _unavailable()


def _unavailable() -> TemporarilyUnavailable:
    return TemporarilyUnavailable(why="template-service, which knows the invitations, does not answer")
