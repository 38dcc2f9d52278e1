"""Challenges for passkeys: one for each pending request, made when a page is shown to a user, and taken once.

Source:
    Web Authentication Level 3 section 13.4.3 (random, at least 16 bytes, kept by the server until the response).
"""

import base64
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from token_service.sign_in.pending import PendingAuthorizations

_BYTES: Final = 32


class Ceremony(msgspec.Struct, frozen=True, kw_only=True):
    """What a page tells the browser about the passkey that it asks for.

    Attributes:
        action: Where the form with the browser's response is sent.
        challenge: Base64url.
        rp_id: The relying party's id: the host of the pages, or a domain above it.
        credentials: Ids of the passkeys to use, base64url; of those not to create again, where one is created.
    """

    action: str
    challenge: str
    rp_id: str
    credentials: Sequence[str] = ()


class Challenges:
    """The challenges of one relying party.

    Args:
        pending: Stores them with the requests.

    Attributes:
        rp_id: The relying party's id; None where browsers cannot use passkeys.
    """

    def __init__(self, pending: PendingAuthorizations, *, rp_id: str | None) -> None:
        self._pending = pending
        self.rp_id = rp_id

    @property
    def are_possible(self) -> bool:
        """Whether browsers can use passkeys here."""
        return self.rp_id is not None

    async def begin(
        self, pending_id: str, *, user_id: str | None, action: str, credentials: Sequence[str] = ()
    ) -> Ceremony | None:
        """Make a challenge for the page of a pending request and its user, which replaces an earlier one.

        None where browsers cannot use passkeys.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        if self.rp_id is None:
            return None
        challenge = base64.urlsafe_b64encode(secrets.token_bytes(_BYTES)).decode().rstrip("=")
        await self._pending.keep_challenge(pending_id, challenge, user_id=user_id)
        return Ceremony(action=action, challenge=challenge, rp_id=self.rp_id, credentials=credentials)

    async def take(self, pending_id: str, *, user_id: str | None) -> str | None:
        """Return the challenge of a pending request, and delete it; None if it was taken, or has expired.

        None, too, if the page was that of another user, who was signed in at this browser before.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return await self._pending.take_challenge(pending_id, user_id=user_id)
