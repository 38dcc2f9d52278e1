"""The message of a mail, as it travels (RFC 5322)."""

from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8

from management_service.mail.texts import Text


def message_of(text: Text, *, sender: Address, recipient: Address, mail_id: str, queued_at: int) -> EmailMessage:
    """Return the message; a repeat of the same mail is the same message, so that receivers can drop it.

    Args:
        text: Its text.
        sender: Its author.
        recipient: Its only recipient.
        mail_id: Id of the mail.
        queued_at: When it was wanted; milliseconds since the epoch.

    Source:
        RFC 3834 section 5 (``Auto-Submitted``, so that no absence notice answers).
    """
    message = EmailMessage(policy=SMTP if recipient.username.isascii() else SMTPUTF8)
    message["From"] = sender
    message["To"] = recipient
    message["Subject"] = text.subject
    message["Date"] = datetime.fromtimestamp(queued_at // 1000, UTC)
    message["Message-ID"] = f"<{mail_id}@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(text.plain)
    message.add_alternative(text.html, subtype="html")
    message["Content-Language"] = text.language  # earlier, it would have moved into the first part
    return message
