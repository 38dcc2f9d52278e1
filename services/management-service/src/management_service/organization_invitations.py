"""Asks template-service, which owns the invitations to organizations, about their links, by request on the bus."""

import hashlib

from identity_common.bus.connection import Bus
from identity_common.bus.sealed_questions import SealedQuestions
from identity_common.wire.organization_invitations import (
    REPLY_TIMEOUT_S,
    OrganizationInvitationRequests,
    Question,
    Refused,
    Unavailable,
)


def link_sha256(link: str) -> str:
    """Return what template-service stores of a link."""
    return hashlib.sha256(link.encode()).hexdigest()


class OrganizationInvitations(SealedQuestions[Question, Refused]):
    """template-service's operations on links of invitations."""

    def __init__(self, bus: Bus, requests: OrganizationInvitationRequests) -> None:
        super().__init__(
            bus,
            requests,
            refused=Refused,
            unavailable=Unavailable,
            name="organization-invitations",
            timeout_s=REPLY_TIMEOUT_S,
            why="template-service, which knows the invitations, does not answer",
        )
