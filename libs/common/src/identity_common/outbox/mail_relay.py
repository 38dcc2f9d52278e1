"""Publishes the mail outbox, by one active replica of each service.

It has a worker of its own: neither mail nor the state may wait for the other.
"""

from typing import Final

import asyncpg
import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Outgoing, Publisher
from identity_common.bus.streams import MAIL_STREAM, ensure_stream
from identity_common.outbox.active_publisher import ActivePublisher
from identity_common.outbox.mail import MAIL_CHANNEL
from identity_common.telemetry.logs import get_logger
from identity_common.wire.mail import MailSource, SealedMail, mail_subject

_log = get_logger(__name__)

_BATCH: Final = 20
"""A mail is under 32 KiB: this many stay below the limit of NATS for what is published at once, 1 MiB."""
_ACKNOWLEDGEMENT_S: Final = 5.0
_LOCK: Final = "identity-mail-relay"
_PENDING: Final = """
    SELECT id, sealed, created_at FROM mail_outbox WHERE tenant_id = $1 ORDER BY created_at LIMIT $2
"""
_DELETE: Final = "DELETE FROM mail_outbox WHERE tenant_id = $1 AND id = ANY($2::text[])"


class MailRelay:
    """Publishes the rows of the mail outbox, and only then deletes them.

    A crash in between publishes them again; the stream drops repeats by their ids.
    """

    def __init__(self, bus: Bus, database_url: str, *, source: MailSource, tenant_id: str) -> None:
        self._bus = bus
        self._tenant_id = tenant_id
        self._subject = mail_subject(source, tenant_id)
        self.loop = ActivePublisher(
            bus,
            database_url,
            begin=self._begin,
            publish_batch=self._publish_batch,
            name=f"mail-relay-{source}",
            lock=_LOCK,
            tenant_id=tenant_id,
            log=_log.bind(source=source, stream=MAIL_STREAM.name),
            channel=MAIL_CHANNEL,
        ).loop

    async def _begin(self, _: asyncpg.Connection) -> None:
        await ensure_stream(self._bus, MAIL_STREAM)

    async def _publish_batch(self, connection: asyncpg.Connection, publisher: Publisher) -> bool:
        rows = await connection.fetch(_PENDING, self._tenant_id, _BATCH)
        messages = [self._message(*row) for row in rows]
        await publisher.publish(messages, timeout_s=_ACKNOWLEDGEMENT_S)
        await connection.execute(_DELETE, self._tenant_id, [row["id"] for row in rows])
        return bool(rows)

    def _message(self, mail_id: str, sealed: bytes, queued_at: int) -> Outgoing:
        mail = SealedMail(id=mail_id, queued_at=queued_at, sealed=sealed)
        return Outgoing(self._subject, f"{self._tenant_id}:mail:{mail_id}", msgspec.json.encode(mail))
