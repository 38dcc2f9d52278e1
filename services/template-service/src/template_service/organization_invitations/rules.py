"""Invitations to organizations: their states, and the bodies of requests about them."""

import unicodedata
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.email_addresses import MAX_EMAIL_CHARACTERS, is_email_address
from identity_common.failures import Conflict, Issue, TooManyAttempts, invalid_input
from identity_common.fields import Body, Id
from identity_common.search import identity_key

MAX_LIFETIME_MS: Final = 90 * 24 * 60 * 60 * 1000
MAX_ROLES: Final = 100
MAX_MESSAGE_CHARACTERS: Final = 1000

OTHER_ADDRESS: Final = "organization_invitation.other_address"
NOT_PENDING: Final = "organization_invitation.not_pending"
HOUR_MS: Final = 60 * 60 * 1000
RESENDING_MS: Final = 60 * 1000
"""How long after its mail an invitation can be mailed again."""

MESSAGES_PER_HOUR: Final = 5
"""How many invitations of one address are mailed in an hour, of all organizations together."""

InvitationStatus = Literal["Pending", "Accepted", "Expired", "Revoked"]
DecidedStatus = Literal["Accepted", "Revoked"]

_Email = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_EMAIL_CHARACTERS)]
_RoleIds = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=256)], ...], msgspec.Meta(max_length=MAX_ROLES)]


class InvitationMessage(Body):
    """What the mail with the link says besides.

    Attributes:
        language: Tag of the language of the mail, such as ``de``; the default language if it is missing or unknown.
        message: A few words to the invited person, in plain text.
    """

    language: Annotated[str, msgspec.Meta(min_length=1, max_length=35)] | None = None
    message: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE_CHARACTERS)] | None = None


class OrganizationInvitationCreation(Body):
    """An invitation of an e-mail address to an organization.

    Attributes:
        organization_id: The organization.
        invitee: The e-mail address that is invited.
        expires_at: When the invitation expires, milliseconds since the epoch: in the future, at most 90 days from now.
        organization_role_ids: Ids of organization roles of the type ``User`` that the invited person gets.
        inviter_id: The user who invites; by default the user of the access token, if it has one.
        message_payload: What the mail with the link says besides, ``{}`` for nothing; ``false`` sends no mail.
    """

    organization_id: Id
    invitee: _Email
    expires_at: int
    organization_role_ids: _RoleIds = ()
    inviter_id: Id | None = None
    message_payload: InvitationMessage | Literal[False] = False


class InvitationDecision(Body):
    """A new status of a pending invitation.

    Attributes:
        status: ``Accepted`` makes the user a member, with the roles of the invitation; ``Revoked`` withdraws it.
        accepted_user_id: The user who accepts it, whose e-mail address is the invited one; with ``Accepted`` only.
    """

    status: DecidedStatus
    accepted_user_id: Id | UnsetType | None = UNSET


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation as stored, without its link.

    Attributes:
        invitee: The invited e-mail address.
        inviter_id: The user who invites, if one does.
        accepted_user_id: The user who has accepted it.
        role_ids: Organization roles, some of which may have been deleted since.
        status: As stored: a pending one may have expired, see ``status_at``.
        created_at: Milliseconds since the epoch, as all times.
        updated_at: Of the last change of its status or link.
        sent_at: When the last mail was queued; empty for none.
    """

    tenant_id: str
    id: str
    organization_id: str
    invitee: str
    inviter_id: str | None = None
    accepted_user_id: str | None = None
    role_ids: list[str]
    status: InvitationStatus = "Pending"
    created_at: int
    updated_at: int
    expires_at: int
    sent_at: list[int] = []

    def status_at(self, now: int) -> InvitationStatus:
        """Return its status at a time."""
        return "Expired" if self.status == "Pending" and self.expires_at <= now else self.status

    def require_pending(self, now: int) -> None:
        """Refuse an invitation that can no longer be accepted, revoked or sent."""
        status = self.status_at(now)
        if status != "Pending":
            raise not_pending(status)

    def require_invited(self, address: str | None) -> None:
        """Refuse an account with another address than the invited one."""
        if address is None or identity_key(address) != identity_key(self.invitee):
            message = "The user's e-mail address is not the invited one."
            raise Conflict(OTHER_ADDRESS, message)


def not_pending(status: InvitationStatus) -> Conflict:
    """Return the failure of an invitation that is not pending any more."""
    return Conflict(NOT_PENDING, f"The invitation is {status.lower()}. Create a new one.")


def require_valid(creation: OrganizationInvitationCreation, *, now: int) -> None:
    """Refuse an invitation of what is not an e-mail address, or until a time that is not near in the future."""
    issues = []
    if not is_email_address(creation.invitee):
        issues.append(Issue("invitee", "must be an e-mail address"))
    if not now < creation.expires_at <= now + MAX_LIFETIME_MS:
        issues.append(Issue("expiresAt", "must be in the future, in milliseconds, and at most 90 days from now"))
    if issues:
        raise invalid_input(*issues)


def canonical(address: str) -> str:
    """Return an address as it is stored: composed (NFC), as a user's is."""
    return unicodedata.normalize("NFC", address)


def require_mailable(invitation: Invitation, *, now: int, mails: int) -> None:
    """Refuse mail to an address that has just had some, or had much.

    Args:
        invitation: The invitation that is about to be mailed.
        now: Milliseconds since the epoch.
        mails: How many mails the address has had in an hour, with this one.
    """
    if invitation.sent_at and now - invitation.sent_at[-1] < RESENDING_MS:
        raise _mailed_too_often(RESENDING_MS // 1000)
    if mails > MESSAGES_PER_HOUR:
        raise _mailed_too_often(HOUR_MS // 1000)


def _mailed_too_often(retry_after_s: int) -> TooManyAttempts:
    message = f"This address had an invitation a minute ago, or {MESSAGES_PER_HOUR} in an hour. Try again later."
    return TooManyAttempts("organization_invitation.mailed_too_often", message, retry_after_s=retry_after_s)


def accepting_user(decision: InvitationDecision) -> str | None:
    """Return the user of an acceptance; None for a withdrawal."""
    user_id = decision.accepted_user_id or None
    if decision.status == "Accepted" and user_id is None:
        raise invalid_input(Issue("acceptedUserId", "is required with the status Accepted"))
    if decision.status == "Revoked" and user_id is not None:
        raise invalid_input(Issue("acceptedUserId", "must be left out with the status Revoked"))
    return user_id
