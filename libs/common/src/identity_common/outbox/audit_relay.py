"""Publishes the audit outbox: in order, many entries a message, by one active replica of each service.

It has a worker of its own: a bus that refuses the audit trail must not hold up the state.
"""

import asyncio
from typing import Final

import asyncpg

from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Outgoing, Publisher
from identity_common.bus.streams import AUDIT_STREAM, ensure_stream
from identity_common.outbox.active_publisher import ActivePublisher
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditLog, audit_subject

_log = get_logger(__name__)

_BATCH: Final = 50
"""Entries are under 16 KiB: a message of this many stays below the limit of NATS, 1 MiB."""
_GATHERING_S: Final = 0.1
"""How long a turn waits for more entries: publishing and storing a message costs about the same for one as for many."""
_ACKNOWLEDGEMENT_S: Final = 5.0
_LOCK: Final = "identity-audit-relay"
# Begins after the last published row: the index still has dead entries for deleted rows.
_PENDING: Final = """
    SELECT sequence, revision, entry FROM audit_outbox
    WHERE tenant_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
"""
_DELETE: Final = "DELETE FROM audit_outbox WHERE tenant_id = $1 AND sequence > $2 AND sequence <= $3"


class AuditRelay:
    """Publishes the rows of the audit outbox, and only then deletes them.

    A crash at any point repeats entries, perhaps in other messages; a reader drops the repeats by their numbers.
    """

    def __init__(self, bus: Bus, database_url: str, *, service: AuditLog, tenant_id: str) -> None:
        self._bus = bus
        self._service: AuditLog = service
        self._tenant_id = tenant_id
        self._subject = audit_subject(service, tenant_id)
        self._last = 0
        self._is_behind = False
        self.loop = ActivePublisher(
            bus,
            database_url,
            begin=self._begin,
            publish_batch=self._publish_batch,
            name=f"audit-relay-{service}",
            lock=_LOCK,
            tenant_id=tenant_id,
            log=_log.bind(source=service, stream=AUDIT_STREAM.name),
        ).loop

    async def _begin(self, _: asyncpg.Connection) -> None:
        self._last = 0
        await ensure_stream(self._bus, AUDIT_STREAM)

    async def _publish_batch(self, connection: asyncpg.Connection, publisher: Publisher) -> bool:
        if not self._is_behind:
            await asyncio.sleep(_GATHERING_S)
        rows = await connection.fetch(_PENDING, self._tenant_id, self._last, _BATCH)
        self._is_behind = len(rows) == _BATCH
        if not rows:
            return False
        last = rows[-1]["sequence"]
        message_id = f"{self._tenant_id}:audit:{self._service}:{rows[0]['sequence']}-{last}"
        entries = b",".join(_numbered(*row) for row in rows)
        message = Outgoing(self._subject, message_id, b"[" + entries + b"]")
        await publisher.publish([message], timeout_s=_ACKNOWLEDGEMENT_S)
        await connection.execute(_DELETE, self._tenant_id, self._last, last)
        self._last = last
        return True


def _numbered(sequence: int, revision: int, entry: str) -> bytes:
    """Return the JSON of an entry with its numbers, which were not known when it was encoded."""
    return f'{{"sequence":{sequence},"revision":{revision},{entry[1:]}'.encode()
