"""``/api/organization-invitations``."""

from typing import Final, cast, get_args

from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import structs

from identity_common.access.parents import parent_exists
from identity_common.fields import Answer
from identity_common.http.listing import PAGED, Listing
from identity_common.http.openapi.declarations import Filter, documented
from template_service.organization_invitations.rules import (
    InvitationDecision,
    InvitationMessage,
    InvitationStatus,
    OrganizationInvitationCreation,
)
from template_service.organization_invitations.service import OrganizationInvitations
from template_service.organization_invitations.store import InvitationWithRoles
from template_service.roles.store import Named

_ORGANIZATION: Final = Filter("organizationId", "Only invitations to this organization.")
_INVITEE: Final = Filter("invitee", "Only invitations of this e-mail address, regardless of case.")
_INVITER: Final = Filter("inviterId", "Only invitations by this user.")
_GUARDS: Final = (parent_exists("organization_invitation"),)
_STATUS: Final = Filter("status", "Only invitations with this status.", values=get_args(InvitationStatus))


class OrganizationInvitationAnswer(Answer):
    """An invitation to an organization. Its link is in the mail alone.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the invitation.
        organization_id: Id of the organization.
        invitee: The invited e-mail address.
        inviter_id: The user who invites; null if none does.
        accepted_user_id: The user who has accepted it; null if none has.
        status: ``Pending`` until it is ``Accepted`` or ``Revoked``, or past its ``expiresAt``: ``Expired``.
        organization_roles: The roles that the invited person gets; one that was deleted is left out.
        created_at: Time of creation, milliseconds since the epoch.
        updated_at: Time of the last change of its status, or of its last mail.
        expires_at: Time of expiry.
        message_sent_at: When its last mail was queued; null for none.
    """

    tenant_id: str
    id: str
    organization_id: str
    invitee: str
    inviter_id: str | None
    accepted_user_id: str | None
    status: InvitationStatus
    organization_roles: tuple[Named, ...]
    created_at: int
    updated_at: int
    expires_at: int
    message_sent_at: int | None


def _answer(found: InvitationWithRoles) -> OrganizationInvitationAnswer:
    fields = structs.asdict(found.invitation)
    del fields["role_ids"]
    sent_at = fields.pop("sent_at")
    return OrganizationInvitationAnswer(
        organization_roles=found.roles, message_sent_at=sent_at[-1] if sent_at else None, **fields
    )


class OrganizationInvitationController(Controller):
    """Invitations of people to organizations, by e-mail address."""

    path = "/organization-invitations"
    tags = ("Organization invitations",)
    dependencies = PAGED

    @post(
        "/",
        operation_id="CreateOrganizationInvitation",
        summary="Invite a person to an organization",
        opt=documented(refuses=(429,)),
    )
    async def create_invitation(
        self, data: JSONBody[OrganizationInvitationCreation], invitations: NamedDependency[OrganizationInvitations]
    ) -> OrganizationInvitationAnswer:
        """Invite an e-mail address to an organization, with or without an account, and on request mail the link.

        An address has at most one pending invitation to an organization, and gets at most five mails in an hour. Where
        the operator has configured no mail server, only invitations without a mail are created (422
        `mail.not_configured`).
        """
        return _answer(await invitations.create(data))

    @get(
        "/",
        operation_id="ListOrganizationInvitations",
        summary="List invitations to organizations",
        opt=documented(filters=(_ORGANIZATION, _INVITEE, _INVITER, _STATUS)),
    )
    async def list_invitations(
        self, listing: NamedDependency[Listing], invitations: NamedDependency[OrganizationInvitations]
    ) -> Response[list[OrganizationInvitationAnswer]]:
        """List invitations by e-mail address; ``q`` searches in the addresses."""
        found, total = await invitations.list_invitations(
            listing.page,
            organization_id=listing.filter(_ORGANIZATION.name),
            invitee=listing.filter(_INVITEE.name),
            inviter_id=listing.filter(_INVITER.name),
            status=cast("InvitationStatus | None", listing.filter(_STATUS.name)),
        )
        return listing.answer([_answer(each) for each in found], total)

    @get(
        "/{organization_invitation_id:str}",
        operation_id="GetOrganizationInvitation",
        summary="Get an invitation to an organization",
    )
    async def get_invitation(
        self, organization_invitation_id: FromPath[str], invitations: NamedDependency[OrganizationInvitations]
    ) -> OrganizationInvitationAnswer:
        """Get one invitation."""
        return _answer(await invitations.get(organization_invitation_id))

    @delete(
        "/{organization_invitation_id:str}",
        operation_id="DeleteOrganizationInvitation",
        summary="Delete an invitation to an organization",
        status_code=204,
    )
    async def delete_invitation(
        self, organization_invitation_id: FromPath[str], invitations: NamedDependency[OrganizationInvitations]
    ) -> None:
        """Delete an invitation in any status; its link ends, a membership stays."""
        await invitations.delete(organization_invitation_id)

    @put(
        "/{organization_invitation_id:str}/status",
        operation_id="ReplaceOrganizationInvitationStatus",
        summary="Accept or revoke an invitation to an organization",
        guards=_GUARDS,
        opt=documented(refuses=(422,)),
    )
    async def replace_status(
        self,
        organization_invitation_id: FromPath[str],
        data: JSONBody[InvitationDecision],
        invitations: NamedDependency[OrganizationInvitations],
    ) -> OrganizationInvitationAnswer:
        """Accept a pending invitation for the user who has its e-mail address, or revoke it.

        Accepting makes the user a member with the roles of the invitation, besides those that it has; roles that were
        deleted since are left out. The people themselves accept by the link in the mail.
        """
        return _answer(await invitations.decide(organization_invitation_id, data))

    @post(
        "/{organization_invitation_id:str}/message",
        operation_id="SendOrganizationInvitationMessage",
        summary="Mail an invitation to an organization again",
        guards=_GUARDS,
        status_code=204,
        opt=documented(refuses=(422, 429)),
    )
    async def send_message(
        self,
        organization_invitation_id: FromPath[str],
        data: JSONBody[InvitationMessage],
        invitations: NamedDependency[OrganizationInvitations],
    ) -> None:
        """Mail a pending invitation, a minute after its last mail at the earliest; links of earlier mails end.

        Without a mail server it is refused (422 `mail.not_configured`).
        """
        await invitations.send(organization_invitation_id, data)
