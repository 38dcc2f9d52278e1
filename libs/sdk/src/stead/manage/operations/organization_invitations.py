"""Invitations of people to organizations, by e-mail address."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import UNSET

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import create_body
from stead.models import OrganizationInvitation


def create_organization_invitation(
    organization_id: str,
    invitee: str,
    *,
    expires_at: int,
    role_ids: Iterable[str] = (),
    inviter_id: str | None = None,
    send: bool = True,
    language: str | None = None,
    message: str | None = None,
) -> Operation[OrganizationInvitation]:
    """Invite an e-mail address to an organization, and mail it a link to accept with.

    ::

        tomorrow = int((time.time() + 86_400) * 1000)
        client.organization_invitations.create(organization.id, "ada@example.com", expires_at=tomorrow)

    Args:
        organization_id: The organization.
        invitee: The e-mail address, with or without an account.
        expires_at: When the invitation expires, milliseconds since the epoch: at most 90 days from now.
        role_ids: Ids of organization roles of the type ``User``, which the invited person gets.
        inviter_id: The user who invites.
        send: Whether to send the mail; otherwise only ``send`` or ``accept`` goes on from here.
        language: Tag of the language of the mail, such as ``de``.
        message: A few words to the invited person, at most 1,000 characters.

    Raises:
        InvalidInput: The address or the time is invalid.
        Conflict: ``entity.unique_integrity_violation``: the address has a pending invitation to the organization;
            ``entity.relation_foreign_key_not_found``: the organization, a role or the inviter does not exist; or a role
            is for applications; ``mail.not_configured``: the service cannot send mail.
        ApiError: ``organization_invitation.mailed_too_often`` (429).
    """
    body = create_body(
        organizationId=organization_id,
        invitee=invitee,
        expiresAt=expires_at,
        organizationRoleIds=list(role_ids),
        inviterId=inviter_id,
        messagePayload=create_body(language=language, message=message) if send else False,
    )
    return decode((yield json_request("POST", api_path("organization-invitations"), body)), OrganizationInvitation)


def get_organization_invitation(invitation_id: str) -> Operation[OrganizationInvitation]:
    """Return an invitation.

    Raises:
        NotFound: The id is unknown.
    """
    path = api_path("organization-invitations", invitation_id)
    return decode((yield json_request("GET", path)), OrganizationInvitation)


def list_organization_invitations(
    *,
    organization_id: str | None = None,
    invitee: str | None = None,
    inviter_id: str | None = None,
    status: Literal["Pending", "Accepted", "Expired", "Revoked"] | None = None,
    search: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OrganizationInvitation]:
    """Iterate over the invitations, ordered by e-mail address.

    Args:
        organization_id: Only invitations to this organization.
        invitee: Only invitations of this address.
        inviter_id: Only invitations by this user.
        status: Only invitations with this status.
        search: Only invitations with this text in their address.
        page_size: Items per request, 1 to 100.
    """
    params = {
        "organizationId": organization_id,
        "invitee": invitee,
        "inviterId": inviter_id,
        "status": status,
        "q": search,
    }
    return ListRequest(api_path("organization-invitations"), OrganizationInvitation, page_size=page_size, params=params)


def accept_organization_invitation(invitation_id: str, user_id: str) -> Operation[OrganizationInvitation]:
    """Accept a pending invitation on behalf of the user who has its e-mail address.

    The user becomes a member with the roles of the invitation. Only do this for a user who has signed in to your
    application: with your credentials, the service takes your word for it.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``organization_invitation.not_pending``, ``organization_invitation.other_address``,
            ``user.suspended``, or the user does not exist.
    """
    path = api_path("organization-invitations", invitation_id, "status")
    body = {"status": "Accepted", "acceptedUserId": user_id}
    return decode((yield json_request("PUT", path, body)), OrganizationInvitation)


def revoke_organization_invitation(invitation_id: str) -> Operation[OrganizationInvitation]:
    """Withdraw a pending invitation: its link ends.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``organization_invitation.not_pending``.
    """
    path = api_path("organization-invitations", invitation_id, "status")
    return decode((yield json_request("PUT", path, {"status": "Revoked"})), OrganizationInvitation)


def send_organization_invitation(
    invitation_id: str, *, language: str | None = None, message: str | None = None
) -> Operation[None]:
    """Mail a pending invitation, again or for the first time; links of earlier mails end.

    Args:
        invitation_id: The invitation.
        language: Tag of the language of the mail, such as ``de``.
        message: A few words to the invited person, at most 1,000 characters.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``organization_invitation.not_pending``, ``mail.not_configured``.
        ApiError: ``organization_invitation.mailed_too_often`` (429): less than a minute after the last mail, or the
            address had five in an hour.
    """
    path = api_path("organization-invitations", invitation_id, "message")
    return command("POST", path, create_body(language=language, message=message))


def delete_organization_invitation(invitation_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an invitation; its link ends, a membership stays.

    Raises:
        NotFound: The id is unknown.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("organization-invitations", invitation_id), if_match=if_match)
