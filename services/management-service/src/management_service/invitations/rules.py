"""Invitations, and when they are valid."""

from typing import Annotated, Final

import msgspec

from identity_common.fields import Body
from management_service.users.rules import Password

DEFAULT_MINUTES: Final = 24 * 60
MAX_MINUTES: Final = 30 * 24 * 60

_MAX_CHARACTERS: Final = 128

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


class StoredInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation without its value.

    Attributes:
        user_id: The invited user, who has at most one invitation.
        sha256: Of the value, hexadecimal.
        tokens_valid_after: The user's value when the invitation was created.
        expires_at: Milliseconds since the epoch.
        scopes: Of the access token that it was created with; None if a command created it.
    """

    tenant_id: str
    user_id: str
    sha256: str
    tokens_valid_after: int
    expires_at: int
    scopes: list[str] | None = None

    def is_valid(self, *, now: int, tokens_valid_after: int) -> bool:
        """Return whether it may be accepted.

        A new password and a suspension invalidate the invitation together with the user's tokens: both change the
        user's ``tokens_valid_after``.

        Args:
            now: Milliseconds since the epoch.
            tokens_valid_after: The user's current value.
        """
        return now < self.expires_at and tokens_valid_after == self.tokens_valid_after
