"""Brings the outbox to the bus: in order, pipelined, by one active relay a service."""

import asyncio
import contextlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import asyncpg
from msgspec import Raw, json
from nats.errors import Error as NatsError
from nats.js.api import Header
from sqlalchemy.engine import make_url

from identity_common.background import end
from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Outgoing, Publisher, publisher_on
from identity_common.bus.streams import ensure_streams, published_revision
from identity_common.clock import now_ms
from identity_common.outbox.changes import NOTIFY_CHANNEL
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import Watermark, relay_subject, watermark_subject
from stead.event_types import CloudEvent

_log = get_logger(__name__)

_BATCH: Final = 1000
_BATCH_BYTES: Final = 640 * 1024
_POLL_S: Final = 1.0
_STANDBY_S: Final = 0.5
_RETRY_S: Final = 0.25
_ACKNOWLEDGEMENT_S: Final = 5.0

_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('identity-relay'), hashtext($1))"
# The outbox is empty at one moment and holds very many rows at the next: no plan is good for both.
_ALWAYS_PLAN: Final = {"plan_cache_mode": "force_custom_plan"}
# Begins behind what is out: an index remembers for a while where the rows were that are forgotten. The first row is
# taken however large it is.
_PENDING: Final = """
    SELECT revision, subject, type, aggregate, occurred_at, data FROM (
        SELECT *, sum(octet_length(data)) OVER (ORDER BY revision) - octet_length(data) AS bytes_before FROM (
            SELECT * FROM outbox WHERE tenant_id = $1 AND revision > $2 ORDER BY revision LIMIT $3
        ) AS next
    ) AS measured WHERE bytes_before < $4 ORDER BY revision
"""
_FORGET: Final = "DELETE FROM outbox WHERE tenant_id = $1 AND revision > $2 AND revision <= $3"
# One statement, one snapshot: revisions have no gaps, so what is counted and no longer waiting is out.
_OUT: Final = """
    SELECT revision - (SELECT count(*) FROM outbox WHERE tenant_id = $1) FROM source_revision WHERE tenant_id = $1
"""
_REPUBLICATION: Final = "SELECT last_revision FROM republication WHERE tenant_id = $1"
_REPUBLISHED: Final = "DELETE FROM republication WHERE tenant_id = $1 AND last_revision <= $2"


class Relay:
    """Publishes what the outbox holds, then the watermark, and only then forgets the rows.

    An advisory lock makes one relay of a service's replicas the active one; the others stand by and listen to how far
    it is. A crash at any point repeats messages with the same ids, which the stream drops.

    Attributes:
        published: How far the events are in the stream, as far as this replica knows.
    """

    def __init__(
        self,
        bus: Bus,
        database_url: str,
        republication: Republication,
        *,
        source: Source,
        tenant_id: str,
        published: Progress,
    ) -> None:
        self.published = published
        self._republication = republication
        self._bus = bus
        url = make_url(database_url).set(drivername="postgresql")
        self._database_url = url.render_as_string(hide_password=False)
        self._source: Source = source
        self._tenant_id = tenant_id
        self._out = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to relay, in the background, until ``stop``."""
        self._tasks = [
            asyncio.create_task(self._keep_relaying(), name=f"relay-{self._source}"),
            asyncio.create_task(self._follow_active_relay(), name=f"relay-follower-{self._source}"),
        ]

    async def stop(self) -> None:
        """Stop; what is not out yet stays in the outbox."""
        await end(*self._tasks)

    async def _follow_active_relay(self) -> None:
        while True:
            await self._bus.connected()
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - a loop that must not end; it is logged and starts again
                _log.error("relay.unheard", source=self._source, error=type(error).__name__, exc_info=error)
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        subscription = await self._bus.client.subscribe(relay_subject(self._source, self._tenant_id))
        try:
            async for message in subscription.messages:
                self.published.advance(int(message.data))
        finally:
            with contextlib.suppress(NatsError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()

    async def _keep_relaying(self) -> None:
        while True:
            try:
                await self._bus.connected()
                await self._relay_while_active()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, NatsError, TimeoutError) as error:
                _log.warning("relay.interrupted", source=self._source, error=type(error).__name__)
            except Exception as error:  # noqa: BLE001 - a loop that must not end; it is logged and starts again
                _log.error("relay.failed", source=self._source, error=type(error).__name__, exc_info=error)
            await asyncio.sleep(_RETRY_S)

    async def _relay_while_active(self) -> None:
        """Hold the lock and relay until something breaks; without the lock, look again a little later."""
        connection = await asyncpg.connect(
            self._database_url, timeout=5, command_timeout=30, server_settings=_ALWAYS_PLAN
        )
        try:
            while not await connection.fetchval(_LOCK, self._tenant_id):  # noqa: ASYNC110 - a lock of the database
                await asyncio.sleep(_STANDBY_S)
            wake = asyncio.Event()
            await connection.add_listener(NOTIFY_CHANNEL, lambda *_: wake.set())
            while True:
                bus_connection = self._bus.connections
                async with publisher_on(self._bus) as publisher:
                    self._out = await self._begin(connection)
                    while bus_connection == self._bus.connections:
                        wake.clear()
                        if not await self._relay_batch(connection, publisher):
                            with contextlib.suppress(TimeoutError):
                                async with asyncio.timeout(_POLL_S):  # wait_for of 3.11 may lose a cancellation
                                    await wake.wait()
        finally:
            # terminate() does not wait for a server that may be gone; its session ends and the lock with it
            connection.terminate()

    async def _begin(self, connection: asyncpg.Connection) -> int:
        """Compare the stream with what is out; one that is empty or behind gets the whole state again.

        Returns what is out.
        """
        await ensure_streams(self._bus)
        out: int | None = await connection.fetchval(_OUT, self._tenant_id)
        if out is None:
            return 0
        if await published_revision(self._bus.jetstream(), self._source, self._tenant_id) < out:
            _log.warning("relay.stream-behind", source=self._source, revision=out)
            await self._republication.request()
        elif not await connection.fetch(_REPUBLICATION, self._tenant_id):
            await self._publish_watermark(out)
        return out

    async def _relay_batch(self, connection: asyncpg.Connection, publisher: Publisher) -> bool:
        """Publish what waits, the watermark, and forget the rows; return whether there was anything to do."""
        republication = await connection.fetchrow(_REPUBLICATION, self._tenant_id)
        if republication is not None and republication["last_revision"] is None:
            await self._republication.run()
            return True
        rows = _without_repetition(await connection.fetch(_PENDING, self._tenant_id, self._out, _BATCH, _BATCH_BYTES))
        last = rows[-1]["revision"] if rows else self._out
        if rows:
            await publisher.publish([self._outgoing(*row) for row in rows], timeout_s=_ACKNOWLEDGEMENT_S)
        if republication is None or last >= republication["last_revision"]:
            if rows or republication is not None:
                await self._publish_watermark(last)
            if republication is not None:
                await connection.execute(_REPUBLISHED, self._tenant_id, last)
        if rows:
            await connection.execute(_FORGET, self._tenant_id, self._out, last)
        self._out = last
        return bool(rows)

    def _outgoing(
        self, revision: int, subject: str, kind: str, aggregate: str, occurred_at: int, data: str
    ) -> Outgoing:
        event = self._event(revision, kind, aggregate, occurred_at, data.encode())
        return Outgoing(subject, event.id, json.encode(event))

    async def _publish_watermark(self, revision: int) -> None:
        """Say in the stream, and then to the other replicas, that everything up to here is out."""
        data = json.encode(Watermark(revision))
        event = self._event(revision, "revision.published", self._source, now_ms(), data)
        headers = {Header.MSG_ID.value: f"{event.id}:watermark"}
        subject = watermark_subject(self._source, self._tenant_id)
        await self._bus.jetstream().publish(subject, json.encode(event), headers=headers)
        self.published.advance(revision)
        await self._bus.client.publish(relay_subject(self._source, self._tenant_id), str(revision).encode())

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


def _without_repetition(rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """Return the rows before the first whose subject another one has.

    Two events of one aggregate are never under way together: if the stream refused the older one only, its repetition
    would be stored behind the newer one, and the older state would be the last of its subject.
    """
    subjects: set[str] = set()
    for number, row in enumerate(rows):
        if row["subject"] in subjects:
            return rows[:number]
        subjects.add(row["subject"])
    return rows


@lru_cache(maxsize=16)  # the events of one transaction have one time
def _rfc3339(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
