"""Ingests the stream of the audit trail: one active replica stores what it reads, each entry exactly once.

The position in the stream is stored in the transaction of the entries. So a crash, a second replica or a restored
database neither repeats nor loses an entry that the stream still has.
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any, Final

import asyncpg
import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from prometheus_client import Counter

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry, audit_subject
from management_service.audit.storing.erasure import erase_some, schedule_erasures
from management_service.audit.storing.figures import count_entries
from management_service.audit.storing.messages import ReadEntry, read_entries
from management_service.audit.storing.numbering import Numberings, gap_entry, is_numbered
from management_service.audit.storing.partitions import Month
from management_service.audit.storing.retention import MAX_AHEAD_MS, Retention
from management_service.audit.storing.stream import read_after, stream_created
from management_service.audit.tree.growth import Growth
from management_service.audit.tree.heads import Heads
from management_service.audit.tree.leaves import Leaf, Parts, leaves_of, parts_of

_log = get_logger(__name__)

_RETRY_S: Final = 0.25
_LOCK: Final = "identity-audit-ingestion"
_NO_NOTIFICATIONS: Final = "audit-ingestion"  # messages of the stream wake it, not those of the database
_SIGNING_MS: Final = 1000

_COLUMNS: Final = (
    *("tenant_id", "occurred_at", "id", "log", "epoch", "sequence", "key", "operation", "application_id"),
    *("user_id", "requested_by", "actor_id", "organization_id", "subject_token_id", "entry", "salt", "leaf_index"),
)
_TIME: Final = _COLUMNS.index("occurred_at")
_KEY: Final = _COLUMNS.index("key")
_Row = tuple[Any, ...]
_STORE_NEW: Final = f"""
    INSERT INTO audit_entries ({", ".join(_COLUMNS)})
    VALUES ({", ".join(f"${number + 1}" for number in range(len(_COLUMNS)))})
    ON CONFLICT DO NOTHING
    RETURNING leaf_index
"""  # noqa: S608 - of constants
_NUMBERINGS: Final = "SELECT log, epoch, last_sequence FROM audit_numberings WHERE tenant_id = $1 ORDER BY number"
_ADVANCE: Final = """
    INSERT INTO audit_numberings (tenant_id, log, epoch, last_sequence)
    SELECT $1, log, epoch, last FROM unnest($2::text[], $3::text[], $4::bigint[]) AS advanced (log, epoch, last)
    ON CONFLICT (tenant_id, log, epoch) DO UPDATE SET last_sequence = excluded.last_sequence
"""
_POSITION: Final = "SELECT position FROM audit_positions WHERE tenant_id = $1 AND stream_created = $2"
_MOVE: Final = """
    INSERT INTO audit_positions (tenant_id, stream_created, position) VALUES ($1, $2, $3)
    ON CONFLICT (tenant_id) DO UPDATE SET stream_created = excluded.stream_created, position = excluded.position
"""


class AuditIngestion:
    """Stores the entries of a tenant, in one replica at a time.

    Args:
        bus: The bus.
        database_url: ``postgresql+asyncpg://…``.
        heads: Signs the tree.
        tenant_id: The tenant.
        retention_days: Age at which entries are dropped, a month at a time.
        skipped: Counts entries that cannot be stored.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        bus: Bus,
        database_url: str,
        heads: Heads,
        *,
        tenant_id: str,
        retention_days: int,
        skipped: Counter,
        clock: Clock = now_ms,
    ) -> None:
        self._bus = bus
        self._heads = heads
        self._tenant_id = tenant_id
        self._retention = Retention(tenant_id=tenant_id, days=retention_days, clock=clock)
        self._skipped = skipped
        self._clock = clock
        self._worker = ActiveWorker(
            self._work,
            database_url,
            lock=_LOCK,
            channel=_NO_NOTIFICATIONS,
            tenant_id=tenant_id,
        )
        self.loop = BackgroundLoop(
            self._run,
            name="audit-ingestion",
            pause_s=_RETRY_S,
            log=_log,
            failed="audit.ingestion-failed",
            interrupted="audit.ingestion-interrupted",
            expected=(
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                NatsError,
                TimeoutError,
                StoreUnavailable,
            ),
        )

    async def _run(self) -> None:
        await self._bus.connected()
        await self._worker.run()

    async def _work(self, holder: LockHolder) -> None:
        connection = holder.connection
        created = await stream_created(self._bus)
        position = await connection.fetchval(_POSITION, self._tenant_id, created) or 0
        numbered = await connection.fetch(_NUMBERINGS, self._tenant_id)
        numberings = Numberings({(row["log"], row["epoch"]): row["last_sequence"] for row in numbered})
        growth = await Growth.opened(connection, self._tenant_id)
        self._retention.forget()
        signed_at = 0
        may_erase = True
        async with aclosing(read_after(self._bus, position, tenant_id=self._tenant_id)) as batches:
            async for messages in batches:
                await self._retention.apply(connection)
                if messages:
                    await self._store(connection, messages, numberings, growth, created)
                    may_erase = True
                if (now := self._clock()) - signed_at >= _SIGNING_MS:
                    await self._heads.sign(connection, growth)
                    signed_at = now
                may_erase = may_erase and await erase_some(connection, self._tenant_id)

    async def _store(
        self,
        connection: asyncpg.Connection,
        messages: Sequence[Msg],
        numberings: Numberings,
        growth: Growth,
        created: str,
    ) -> None:
        """Store a batch, with the gaps in it, their leaves, and the new position."""
        oldest = self._retention.oldest
        entries: list[AuditEntry] = []
        rows: list[_Row] = []
        parts: list[Parts] = []
        for entry, text, own_parts in chain.from_iterable(map(self._entries, messages)):
            gap = numberings.advance(entry)
            if entry.occurred_at < oldest:
                continue
            if gap is not None:
                entries.append(recorded := gap_entry(gap, entry))
                rows.append(_row(recorded, msgspec.json.encode(recorded).decode()))
                parts.append(parts_of(msgspec.to_builtins(recorded)))
                _log.warning("audit.gap", source=entry.log, sequence=entry.sequence)
            entries.append(entry)
            rows.append(_row(entry, text))
            parts.append(own_parts)
        await self._retention.require_partitions(connection, {Month.of(entry.occurred_at) for entry in entries})
        position = messages[-1].metadata.sequence.stream
        advanced, numberings.advanced = numberings.advanced, {}
        async with connection.transaction():
            stored = await _store_rows(connection, rows, leaves_of(parts), growth)
            await count_entries(connection, self._tenant_id, (_time_and_key(row) for row in stored))
            await schedule_erasures(connection, self._tenant_id, entries)
            if advanced:
                logs, epochs = zip(*advanced, strict=True)
                await connection.execute(_ADVANCE, self._tenant_id, logs, epochs, [*advanced.values()])
            await connection.execute(_MOVE, self._tenant_id, created, position)

    def _entries(self, message: Msg) -> Iterator[ReadEntry]:
        """Yield the entries of a message; log and count those that cannot be stored.

        No caller of the services can cause one of these.
        """
        for found in read_entries(message.data):
            if found is None or not self._is_placed(found.entry, message.subject):
                self._skipped.inc()
                _log.error("audit.entry-malformed", subject=message.subject, sequence=message.metadata.sequence.stream)
            else:
                yield found

    def _is_placed(self, entry: AuditEntry, subject: str) -> bool:
        """Return whether an entry is one of its subject, has a number, and a time that a partition may have."""
        return (
            subject == audit_subject(entry.log, self._tenant_id)
            and entry.tenant_id == self._tenant_id
            and is_numbered(entry)
            and 0 <= entry.occurred_at < self._clock() + MAX_AHEAD_MS
        )


async def _store_rows(
    connection: asyncpg.Connection, rows: Sequence[_Row], leaves: Sequence[Leaf], growth: Growth
) -> Sequence[_Row]:
    """Store the entries that are not repeats, with their leaf indexes, and append their leaves; return those rows.

    COPY costs much less than INSERT, but cannot skip repeats, which are rare.
    """
    while rows:
        placed = [
            (*row, leaf.salt, index) for index, (row, leaf) in enumerate(zip(rows, leaves, strict=True), growth.size)
        ]
        try:
            async with connection.transaction():
                await connection.copy_records_to_table("audit_entries", records=placed, columns=_COLUMNS)
        except asyncpg.UniqueViolationError:
            new = [index - growth.size for index in await _not_stored(connection, placed)]
            rows, leaves = [rows[each] for each in new], [leaves[each] for each in new]
        else:
            await growth.append(connection, [leaf.hash for leaf in leaves])
            return rows
    return []


async def _not_stored(connection: asyncpg.Connection, placed: Sequence[_Row]) -> list[int]:
    """Return the leaf indexes of the entries that are not stored yet; rolls back, so stores nothing."""
    attempt = connection.transaction()
    await attempt.start()
    try:
        return [row["leaf_index"] for row in await connection.fetchmany(_STORE_NEW, placed)]
    finally:
        await attempt.rollback()


def _time_and_key(row: _Row) -> tuple[int, str]:
    return row[_TIME], row[_KEY]


def _row(entry: AuditEntry, text: str) -> _Row:
    """Return the values of an entry in the order of ``_COLUMNS``, without its salt and leaf index."""
    return (
        entry.tenant_id,
        entry.occurred_at,
        entry.id,
        entry.log,
        entry.epoch,
        entry.sequence or None,
        entry.key,
        entry.operation,
        entry.application_id,
        entry.user_id,
        entry.requested_by,
        entry.actor_id,
        entry.organization_id or entry.ids.get("organization_id") or _created_organization(entry),
        entry.subject_token_id or entry.ids.get("impersonation_id"),
        text,
    )


def _created_organization(entry: AuditEntry) -> str | None:
    """Return the id of the only organization that a write changed; a created one is not in the path of the request."""
    kind = "organization/"
    ids = [each.removeprefix(kind) for each in entry.aggregates if each.startswith(kind)]
    return ids[0] if len(ids) == 1 else None
