"""Invitations, and when they are valid."""

from typing import Annotated, Final, Literal

import msgspec

from identity_common.fields import Answer, Body
from management_service.users.rules import Password

DEFAULT_MINUTES: Final = 24 * 60
MAX_MINUTES: Final = 30 * 24 * 60

_MAX_CHARACTERS: Final = 128

InvitationStatus = Literal["Pending", "Expired"]
Minutes = Annotated[int, msgspec.Meta(ge=1, le=MAX_MINUTES)]


class InvitationCreation(Body):
    """How long a new invitation is valid.

    Attributes:
        minutes: Lifetime in minutes.
    """

    minutes: Minutes = DEFAULT_MINUTES


class InvitationAcceptance(Body):
    """An invitation and the password that the user has chosen.

    Attributes:
        invitation: The value of the invitation.
        password: The password that the user has chosen, 8 to 256 characters.
    """

    invitation: Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_CHARACTERS)]
    password: Password

    def __repr__(self) -> str:
        """Hide both."""
        return "InvitationAcceptance()"


class OpenInvitation(Answer):
    """An invitation that the user has not accepted, without its value.

    Attributes:
        user_id: The invited user.
        status: ``Pending``, or ``Expired``: a new one would be needed.
        created_at: When it was created, milliseconds since the epoch; null if an earlier release created it.
        expires_at: When it expires, milliseconds since the epoch.
        inviter_id: The user who created it; null if an application or a command of the operator did.
        application_id: The application that created it, for the user or for itself; null for a command.
    """

    user_id: str
    status: InvitationStatus
    created_at: int | None
    expires_at: int
    inviter_id: str | None
    application_id: str | None


class StoredInvitation(msgspec.Struct, frozen=True):
    """An invitation without its value.

    Attributes:
        user_id: The invited user, who has at most one invitation.
        sha256: Of the value, hexadecimal.
        tokens_valid_after: The user's value when the invitation was created.
        expires_at: Milliseconds since the epoch.
        scopes: Of the access token that it was created with; None if a command created it.
        created_at: Milliseconds since the epoch; None if an earlier release created it.
        inviter_id: The user who created it; None if an application or a command did.
        application_id: The client of the access token; None if a command created it.
    """

    tenant_id: str
    user_id: str
    sha256: str
    tokens_valid_after: int
    expires_at: int
    scopes: list[str] | None = None
    created_at: int | None = None
    inviter_id: str | None = None
    application_id: str | None = None

    def is_valid(self, *, now: int, tokens_valid_after: int) -> bool:
        """Return whether it may be accepted.

        A new password and a suspension invalidate the invitation together with the user's tokens: both change the
        user's ``tokens_valid_after``.

        Args:
            now: Milliseconds since the epoch.
            tokens_valid_after: The user's current value.
        """
        return now < self.expires_at and tokens_valid_after == self.tokens_valid_after

    def open_at(self, now: int) -> OpenInvitation:
        """Return what the API shows at a time, of an invitation that nothing but time has ended."""
        return OpenInvitation(
            user_id=self.user_id,
            status="Pending" if now < self.expires_at else "Expired",
            created_at=self.created_at,
            expires_at=self.expires_at,
            inviter_id=self.inviter_id,
            application_id=self.application_id,
        )
