"""What a mailed link is, and when it is valid."""

import hashlib
from typing import Literal

import msgspec

from identity_common.search import identity_key

LinkKind = Literal["password-recovery", "email-verification", "registration"]
"""What a link does."""


class MailedLink(msgspec.Struct, frozen=True):
    """A link without its value, of which only the hash is stored.

    Attributes:
        subject: What has at most one link of this kind: a user's id, or ``address_subject`` of an address.
        sha256: Of the value, hexadecimal.
        user_id: The account that it belongs to; None without one.
        address: The e-mail address that it was sent to.
        tokens_valid_after: The account's value when the link was created; None without an account.
        context: JSON that the page of the link needs.
        created_at: Milliseconds since the epoch.
        expires_at: Milliseconds since the epoch.
    """

    tenant_id: str
    kind: LinkKind
    subject: str
    sha256: str
    user_id: str | None
    address: str
    tokens_valid_after: int | None
    context: str
    created_at: int
    expires_at: int

    def __repr__(self) -> str:
        """Hide the address."""
        return f"MailedLink(kind={self.kind!r}, user_id={self.user_id!r})"


def link_sha256(value: str) -> str:
    """Return the hash under which a link is stored."""
    return hashlib.sha256(value.encode()).hexdigest()


def address_subject(address: str) -> str:
    """Return the subject of an e-mail address, regardless of case: a hash, as the address may belong to no account."""
    return hashlib.sha256(identity_key(address).encode()).hexdigest()
