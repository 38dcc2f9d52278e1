"""Operations on mail."""

from __future__ import annotations

from stead import MailFailure
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.mail.failures(),
        "GET",
        "/api/mail/failures",
        None,
        [
            {"id": "m1", "kind": "registration", "reason": "refused", "recipient": "ada@id.test", "userId": None}
            | {"code": 550, "answer": "no", "occurredAt": 7}
        ],
        [
            MailFailure(
                id="m1",
                kind="registration",
                reason="refused",
                recipient="ada@id.test",
                code=550,
                answer="no",
                occurred_at=7,
            )
        ],
    ),
]
