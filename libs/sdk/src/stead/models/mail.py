"""Mail."""

from __future__ import annotations

import msgspec


class MailFailure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A mail that was given up.

    Attributes:
        id: Id of the mail; its ``Message-ID`` has it.
        kind: What it was about, such as ``password-recovery``.
        reason: ``refused``, ``expired``, ``unusable`` or ``not-configured``.
        recipient: The address.
        user_id: The account that it was about; None without one.
        code: The last answer of the mail server, such as 550; None if it gave none.
        answer: The text of that answer, or what was wrong.
        occurred_at: When it was given up; milliseconds since the epoch.
    """

    id: str
    kind: str = ""
    reason: str = ""
    recipient: str = ""
    user_id: str | None = None
    code: int | None = None
    answer: str = ""
    occurred_at: int = 0
