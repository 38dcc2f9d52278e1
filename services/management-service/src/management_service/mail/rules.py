"""What the API shows of mail that could not be sent. Pure."""

from typing import Final, Literal

from identity_common.fields import Answer
from identity_common.wire.mail import MailKind

MAX_FAILURES: Final = 200
MAX_ANSWER: Final = 256
KEPT_DAYS: Final = 30

MailFailureReason = Literal["refused", "expired", "unusable", "not-configured"]


class MailFailure(Answer):
    """A mail that was given up.

    Attributes:
        id: Id of the mail; the log and its ``Message-ID`` have it.
        kind: What it was about.
        reason: ``refused`` permanently by the mail server; ``expired`` because it was not accepted within 24 hours or
            before its link expired; ``unusable``, such as a malformed address; ``not-configured`` without a mail
            server.
        recipient: The address.
        user_id: The account that it was about; null without one.
        code: The last answer of the mail server, such as 550; null if it gave none.
        answer: The text of that answer, or what was wrong.
        occurred_at: When it was given up, milliseconds since the epoch.
    """

    id: str
    kind: MailKind
    reason: MailFailureReason
    recipient: str
    user_id: str | None
    code: int | None
    answer: str
    occurred_at: int
