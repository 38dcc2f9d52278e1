"""The request in which template-service asks management-service, which sends all mail, whether it sends any.

A NATS request on a subject that belongs to no stream. Only template-service may send it, only management-service may
reply. The request has no members.
"""

from typing import Final

import msgspec

MAIL_SENDING_TIMEOUT_S: Final = 1.0
"""How long template-service waits for the reply."""


def mail_sending_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.mail-sending"


class MailSending(msgspec.Struct, frozen=True):
    """The reply.

    Attributes:
        is_configured: Whether mail is sent, if only into a folder; otherwise what needs mail is off.
    """

    is_configured: bool
