"""The mail outbox: mail that a transaction wants sent, if it commits."""

from typing import Final

import msgspec
from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.wire.mail import Mail, sealing_name

MAIL_CHANNEL: Final = "mail_outbox"
"""Channel of the notifications that wake the relay."""

MAX_BYTES: Final = 24 * 1024
"""Limit of a mail's JSON: what callers put into it is bounded where they take it."""

_QUEUE = text(
    """
    WITH queued AS (
        INSERT INTO mail_outbox (tenant_id, id, sealed, created_at) VALUES (:tenant_id, :id, :sealed, :now)
        RETURNING id
    )
    SELECT pg_notify(:channel, '') FROM queued
    """
).bindparams(
    bindparam("tenant_id", type_=Text),
    bindparam("id", type_=Text),
    bindparam("sealed", type_=LargeBinary),
    bindparam("now", type_=BigInteger),
    bindparam("channel", type_=Text),
)
_DROP: Final = text("DELETE FROM mail_outbox WHERE tenant_id = :tenant_id")


async def drop_queued(connection: AsyncConnection, tenant_id: str) -> None:
    """Drop all queued mail: that of a restored database was sent when it was queued, and its links are void."""
    await connection.execute(_DROP, {"tenant_id": tenant_id})


class MailOutbox:
    """Queues mail in the transaction of the use case that wants it.

    Args:
        keys: The keys of ``MAIL_KEYS``.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(self, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._keys = keys
        self._tenant_id = tenant_id
        self._clock = clock

    async def queue(self, connection: AsyncConnection, mail: Mail) -> None:
        """Queue a mail: it is sent only if the transaction of this connection commits.

        Raises:
            ValueError: The mail has more than ``MAX_BYTES``.
        """
        mail_id, content = new_id(), msgspec.json.encode(mail)
        if len(content) > MAX_BYTES:
            raise ValueError("the mail is too large")
        sealed = self._keys.seal(content, name=sealing_name(mail_id))
        await connection.execute(
            _QUEUE,
            {
                "tenant_id": self._tenant_id,
                "id": mail_id,
                "sealed": sealed,
                "now": self._clock(),
                "channel": MAIL_CHANNEL,
            },
        )
