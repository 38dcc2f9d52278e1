"""Replies to management-service, which asks on the bus about the links of invitations."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from identity_common.audited_request import AUDITED_REQUEST, AuditedRequest
from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.failures import Conflict, NotFound, NotYetThere, TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.organization_invitations import (
    AcceptInvitation,
    Answer,
    FindInvitation,
    InvitationAccepted,
    InvitationFound,
    Invited,
    IsInvited,
    OrganizationInvitationRequests,
    Question,
    Refused,
    Unavailable,
)
from template_service.organization_invitations.rules import NOT_PENDING
from template_service.organization_invitations.service import OrganizationInvitations

_log = get_logger(__name__)

_AT_ONCE: Final = 64
_OPERATION: Final = "ReplaceOrganizationInvitationStatus"
"""What the audit trail calls an acceptance, by whichever way."""


class InvitationReplies:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        invitations: The invitations.
    """

    def __init__(self, requests: OrganizationInvitationRequests, invitations: OrganizationInvitations) -> None:
        self._requests = requests
        self._invitations = invitations

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""
        return sealed_responder(
            bus,
            self._requests,
            self._answer,
            unavailable=Unavailable(),
            name="organization-invitations",
            log=_log,
            expected=(SQLAlchemyError, TemporarilyUnavailable, NotYetThere, OSError),
            at_once=_AT_ONCE,
        )

    async def _answer(self, question: Question, _: float) -> Answer:
        match question:
            case FindInvitation():
                return await self._find(question)
            case AcceptInvitation():
                return await self._accept(question)
            case IsInvited():
                return Invited(is_invited=await self._invitations.is_invited(question.email))

    async def _find(self, question: FindInvitation) -> InvitationFound | Refused:
        opened = await self._invitations.opened_by(question.link_sha256)
        if opened is None:
            return Refused(reason="link-not-valid")
        return InvitationFound(
            organization=opened.organization, invitee=opened.invitation.invitee, inviter=opened.inviter
        )

    async def _accept(self, question: AcceptInvitation) -> InvitationAccepted | Refused:
        opened = await self._invitations.opened_by(question.link_sha256)
        if opened is None:
            return Refused(reason="link-not-valid")
        _audit(question, opened.invitation.id)
        try:
            await self._invitations.accept_by_link(opened.invitation.id, question.user_id, question.link_sha256)
        except NotFound:  # it was deleted, or its organization was
            return Refused(reason="link-not-valid")
        except Conflict as failure:
            return Refused(reason="link-not-valid" if failure.code == NOT_PENDING else "account-not-accepted")
        return InvitationAccepted(organization=opened.organization)


def _audit(question: AcceptInvitation, invitation_id: str) -> None:
    """Have the changes of this task recorded in the audit trail, as made by the user whom the link authenticates."""
    AUDITED_REQUEST.set(
        AuditedRequest(
            operation=_OPERATION,
            application_id=None,
            user_id=question.user_id,
            token_id="",
            address=question.address,
            user_agent=question.user_agent,
            ids={"organization_invitation_id": invitation_id},
            given={"acceptedUserId": (question.user_id,)},
        )
    )
