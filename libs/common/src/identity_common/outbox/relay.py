"""Publishes the outbox: in order, pipelined, by one active relay for each service."""

from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Final

import asyncpg
from msgspec import Raw, json
from nats.aio.msg import Msg
from nats.js.api import Header

from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Outgoing, Publisher
from identity_common.bus.standing_subscription import StandingSubscription
from identity_common.bus.streams import StoredWatermark, ensure_streams, last_watermark
from identity_common.clock import now_ms
from identity_common.outbox.active_publisher import ActivePublisher
from identity_common.outbox.lost_writes import LostWrites
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.telemetry.tracing import tracing
from identity_common.wire.events import WATERMARK_TYPE, Watermark, relay_subject, watermark_subject
from stead.event_types import CloudEvent

_log = get_logger(__name__)

_BATCH: Final = 1000
_BATCH_BYTES: Final = 640 * 1024
_ACKNOWLEDGEMENT_S: Final = 5.0

LOCK: Final = "identity-relay"
# Begins after the last published row: the index still has dead entries for deleted rows. The first row is included
# whatever its size.
_PENDING: Final = """
    SELECT revision, subject, type, aggregate, occurred_at, data, traceparent FROM (
        SELECT *, sum(octet_length(data)) OVER (ORDER BY revision) - octet_length(data) AS bytes_before FROM (
            SELECT * FROM outbox WHERE tenant_id = $1 AND revision > $2 ORDER BY revision LIMIT $3
        ) AS next
    ) AS measured WHERE bytes_before < $4 ORDER BY revision
"""
_DELETE: Final = "DELETE FROM outbox WHERE tenant_id = $1 AND revision > $2 AND revision <= $3"
# The highest published revision, in one snapshot: all changes that are not in the outbox are published. Revisions have
# no gaps except the one that a restoration leaves, below an empty outbox.
_LAST_PUBLISHED: Final = """
    SELECT revision - (SELECT count(*) FROM outbox WHERE tenant_id = $1) FROM source_revision WHERE tenant_id = $1
"""
_REPUBLICATION: Final = "SELECT last_revision FROM republication WHERE tenant_id = $1"
_REPUBLISHED: Final = "DELETE FROM republication WHERE tenant_id = $1 AND last_revision <= $2"


class Relay:
    """Publishes the rows of the outbox, then the watermark, and only then deletes the rows.

    One replica of the service is active; the others follow its progress. A crash at any point repeats messages with
    the same ids, which the stream deduplicates. A watermark is stored only after the one before it: in a stream that
    was recreated meanwhile it is refused, and the relay begins again, with a republication.

    Attributes:
        published: How far the events are in the stream, as far as this replica knows.
    """

    def __init__(
        self,
        bus: Bus,
        database_url: str,
        republication: Republication,
        lost_writes: LostWrites,
        *,
        source: Source,
        tenant_id: str,
        published: Progress,
    ) -> None:
        self.published = published
        self._republication = republication
        self._lost_writes = lost_writes
        self._is_refusing = False
        self._bus = bus
        self._source: Source = source
        self._tenant_id = tenant_id
        self._tracing = tracing()
        self._last = 0
        self._stored = 0
        self._watermark = StoredWatermark(0, 0)
        log = _log.bind(source=source)
        self._relaying = ActivePublisher(
            bus,
            database_url,
            begin=self._begin,
            publish_batch=self._relay_batch,
            name=f"relay-{source}",
            lock=LOCK,
            tenant_id=tenant_id,
            log=log,
        )
        self._following = StandingSubscription(
            bus, relay_subject(source, tenant_id), self._follow, name=f"relay-follower-{source}"
        )

    def start(self) -> None:
        """Begin to relay in the background."""
        self._relaying.loop.start()
        self._following.start()

    async def stop(self) -> None:
        """Stop; unpublished rows stay in the outbox."""
        await self._relaying.loop.stop()
        await self._following.stop()

    async def _follow(self, message: Msg) -> None:
        """Advance ``published`` as the active relay reports."""
        try:
            self.published.advance(int(message.data))
        except ValueError:
            _log.warning("relay.report-malformed", source=self._source)

    async def _begin(self, connection: asyncpg.Connection) -> None:
        """Go to the last published revision; request a republication if the stream is empty or behind.

        While changes are refused, nothing is published.
        """
        await ensure_streams(self._bus)
        self._is_refusing = not await self._lost_writes.check(connection)
        if self._is_refusing:
            return
        last: int | None = await connection.fetchval(_LAST_PUBLISHED, self._tenant_id)
        self._last, self._stored = last or 0, 0
        if last is None:
            return
        self._watermark = await last_watermark(self._bus.jetstream(), self._source, self._tenant_id)
        if self._watermark.revision < last:
            _log.warning("relay.stream-behind", source=self._source, revision=last)
            await self._republication.request()
        elif not await connection.fetch(_REPUBLICATION, self._tenant_id):
            await self._publish_watermark(last)

    async def _relay_batch(self, connection: asyncpg.Connection, publisher: Publisher) -> bool:
        """Publish a batch of rows and the watermark, then delete the rows; return whether there was anything to do."""
        if self._is_refusing:
            self._lost_writes.note()
            return False
        republication = await connection.fetchrow(_REPUBLICATION, self._tenant_id)
        if republication is not None and republication["last_revision"] is None:
            await self._republication.run()
            return True
        rows = _distinct_subjects(await connection.fetch(_PENDING, self._tenant_id, self._last, _BATCH, _BATCH_BYTES))
        last = rows[-1]["revision"] if rows else self._last
        if rows:
            await self._require_order(await self._publish(publisher, rows))
        if republication is None or last >= republication["last_revision"]:
            if rows or republication is not None:
                await self._publish_watermark(last)
            if republication is not None:
                await connection.execute(_REPUBLISHED, self._tenant_id, last)
        if rows:
            await connection.execute(_DELETE, self._tenant_id, self._last, last)
        self._last = last
        return bool(rows)

    async def _publish(self, publisher: Publisher, rows: list[asyncpg.Record]) -> list[int]:
        with self._tracing.spans("producer", [(row["type"], row["traceparent"]) for row in rows]) as traceparents:
            messages = [self._outgoing(row, each) for row, each in zip(rows, traceparents, strict=True)]
            return await publisher.publish(messages, timeout_s=_ACKNOWLEDGEMENT_S)

    async def _require_order(self, sequences: list[int]) -> None:
        """Request a republication unless these positions follow each other, and those before them.

        If the leader of the stream changes during an attempt, messages in the middle may be lost, and those after them
        stored. The next attempt stores the former after the latter, where readers take them for repeats.
        """
        if any(later < earlier for earlier, later in pairwise((self._stored, *sequences))):
            _log.warning("relay.out-of-order", source=self._source, sequence=sequences[-1])
            await self._republication.request()
        self._stored = max(self._stored, *sequences)

    def _outgoing(self, row: asyncpg.Record, traceparent: str | None) -> Outgoing:
        event = self._event(row["revision"], row["type"], row["aggregate"], row["occurred_at"], row["data"].encode())
        return Outgoing(row["subject"], event.id, json.encode(event), traceparent)

    async def _publish_watermark(self, revision: int) -> None:
        """Announce in the stream, and then to the other replicas, that all events up to a revision are published."""
        if revision > self._watermark.revision or not self._watermark.sequence:
            await self._store_watermark(revision)
        self.published.advance(revision)
        await self._bus.client.publish(relay_subject(self._source, self._tenant_id), str(revision).encode())

    async def _store_watermark(self, revision: int) -> None:
        event = self._event(revision, WATERMARK_TYPE, self._source, now_ms(), json.encode(Watermark(revision)))
        headers = {
            Header.MSG_ID.value: f"{event.id}:watermark",
            Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._watermark.sequence),
        }
        subject = watermark_subject(self._source, self._tenant_id)
        stored = await self._bus.jetstream().publish(subject, json.encode(event), headers=headers)
        self._watermark = StoredWatermark(revision, stored.seq)

    def _event(self, revision: int, kind: str, aggregate: str, occurred_at: int, data: bytes) -> CloudEvent:
        return CloudEvent(
            id=f"{self._tenant_id}:{self._source}:{revision}",
            source=f"/{self._source}",
            type=kind,
            subject=aggregate,
            time=_rfc3339(occurred_at),
            tenantid=self._tenant_id,
            revision=revision,
            data=Raw(data),
        )


def _distinct_subjects(rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """Return the rows before the first one that repeats a subject.

    A batch never holds two events of one aggregate: if the stream refused only the older one, its repetition would be
    stored after the newer one, and the older state would be the last of its subject.
    """
    subjects: set[str] = set()
    for number, row in enumerate(rows):
        if row["subject"] in subjects:
            return rows[:number]
        subjects.add(row["subject"])
    return rows


@lru_cache(maxsize=16)  # the events of a transaction share their time
def _rfc3339(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
