"""What a mailed link is, and when it is valid."""

import hashlib
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec

from identity_common.search import identity_key
from identity_common.wire.account_links import LinkContext

LinkKind = Literal["password-recovery", "email-verification", "registration"]
"""What a link does."""

RECOVERY_S: Final = 15 * 60
"""Lifetime of a link for a forgotten password."""
VERIFICATION_S: Final = 24 * 60 * 60
"""Lifetime of a link that confirms an e-mail address."""
REGISTRATION_S: Final = 24 * 60 * 60
"""Lifetime of a link to register."""
REQUESTED_MAILS: Final = 3
"""Mails with links of one kind that one recipient gets, or one user has sent, in a window of ``RECOVERY_S``. As long as
a link for a forgotten password lives: the window that refuses further mails began with one whose link is still valid,
or has not ended. Mails of another kind must not count, since they leave the recipient without such a link."""


class LinkNotValidError(Exception):
    """A link is unknown, spent, replaced or expired, or its account has changed since."""


class MailedLink(msgspec.Struct, frozen=True):
    """A link without its value, of which only the hash is stored.

    Attributes:
        subject: What has at most one link of this kind: a user's id, or ``address_subject`` of an address.
        sha256: Of the value, hexadecimal.
        user_id: The account that it belongs to; None without one.
        address: The e-mail address that it was sent to.
        tokens_valid_after: The account's value when the link was created; None without an account.
        context: Where it was requested.
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
    context: LinkContext
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


def counted_as(kind: LinkKind, subject: str) -> str:
    """Return what the limit of mails counts: a subject, for each kind of link by itself."""
    return f"{kind} {subject}"


def path_of(page: str, value: str) -> str:
    """Return the path of a link below ``base_url``, for the mail."""
    return f"{page}?{urlencode({'link': value})}"
