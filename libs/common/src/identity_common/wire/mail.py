"""Mail that management-service shall send, on its way from the outbox of the service that wants it.

A stream of its own carries it, sealed under ``MAIL_KEYS``: a mail holds an address, and often a link that signs in.
management-service and template-service publish, each its own subject; management-service alone reads.
"""

from typing import Final, Literal

import msgspec

STREAM_MAIL: Final = "IDENTITY_MAIL"
MAIL_PREFIX: Final = "identity-mail"

LIFETIME_S: Final = 86_400.0
"""For how long a mail is tried."""
KEPT_S: Final = LIFETIME_S + 3600.0
"""How long the stream keeps a mail: longer than it is tried, so that the sender notices when its time is over."""

MailSource = Literal["management", "template"]
"""A service that wants mail sent."""

MailKind = Literal[
    "password-recovery",
    "password-changed",
    "email-verification",
    "email-changed",
    "organization-invitation",
    "registration",
    "already-registered",
    "enrolment-code",
    "factor-added",
    "factor-removed",
    "recovery-code-used",
]
"""What a mail is about: each kind has its own text."""


def mail_subject(source: MailSource, tenant_id: str) -> str:
    """Return the subject of a service's mail: ``identity-mail.default.management``."""
    return f"{MAIL_PREFIX}.{tenant_id}.{source}"


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mail to one recipient; the sender makes its text.

    Attributes:
        kind: What it is about.
        recipient: The address. Empty: nothing is sent, so that a request about an unknown address takes the same steps.
        language: Tag of the language of the text, such as ``de``; None for the default.
        application_id: The application whose name and colour the mail shows; None for the tenant's own.
        user_id: The account that the mail is about; once it is deleted, the mail is not sent. None without one.
        organization_id: The organization that the mail is about; None without one.
        expires_at: When the mail becomes pointless, such as at the expiry of its link; milliseconds since the epoch,
            UTC. None: it is tried for a day.
        values: What the text needs. ``link`` is a path below ``base_url``, with query and fragment.
    """

    kind: MailKind
    recipient: str
    language: str | None = None
    application_id: str | None = None
    user_id: str | None = None
    organization_id: str | None = None
    expires_at: int | None = None
    values: dict[str, str] = {}

    def __repr__(self) -> str:
        """Hide the recipient and the values."""
        return f"Mail(kind={self.kind!r})"


class SealedMail(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the stream.

    Attributes:
        id: Id of the mail; it is safe to log.
        queued_at: When the transaction queued it; milliseconds since the epoch, UTC.
        sealed: The JSON of a ``Mail``, sealed for ``sealing_name``.
    """

    id: str
    queued_at: int
    sealed: bytes


def sealing_name(mail_id: str) -> str:
    """Return the name that a mail is sealed for."""
    return f"mail {mail_id}"
