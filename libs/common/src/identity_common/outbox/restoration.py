"""Repair of a source's database that lacks published changes: new revisions exceed all that were published.

The database was restored to an earlier point, or a standby without the last changes was promoted. The relay publishes
the whole state when it begins, because the stream is then behind (docs/decisions/0022, 0042). Does not own the tables
of the aggregates.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

from msgspec import json
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.bus.connection import Bus
from identity_common.bus.streams import SNAPSHOT_OF, STREAM_OF, ensure_streams, last_published, stream_info
from identity_common.clock import now_ms
from identity_common.outbox.change import Change
from identity_common.outbox.changes import Changes, Transaction
from identity_common.outbox.relay import LOCK
from identity_common.outbox.republication import Republication
from identity_common.revisions import Source
from identity_common.stores.database import server_of
from identity_common.wire.events import event_subject
from stead.event_types import CloudEvent

REVISIONS_PER_MS: Final = 10
"""No source exceeds this rate for long, so its revisions stay below this multiple of the time in milliseconds. The
product has 14 digits until 2286, the most that Lua in Redis formats without loss."""

_IDENTITY: Final = frozenset({"id", "kind", "holder_kind", "resource_id", "organizationId", "memberId", "memberType"})
_IDLE: Final = text("SELECT pg_try_advisory_xact_lock(hashtext(:lock), hashtext(:tenant))")
_CURRENT: Final = text("SELECT revision FROM source_revision WHERE tenant_id = :tenant FOR UPDATE")
# The entries that this source has published since are in the trail: a repeated number would be dropped there.
_RAISE: Final = text(
    """
    UPDATE source_revision SET
        revision = :revision, audit_sequence = GREATEST(:least, audit_sequence + 1), checked_server = :server
    WHERE tenant_id = :tenant
    """
)
_FORGET: Final = text("DELETE FROM outbox WHERE tenant_id = :tenant")


class StillRunningError(Exception):
    """A replica of the service holds the lock that one of the running replicas always holds."""


class Published(NamedTuple):
    """The last event of an aggregate that the restored database does not know.

    Attributes:
        kind: Kind of the aggregate.
        aggregate: Its ids, joined by slashes.
        state: Its state.
    """

    subject: str
    kind: str
    aggregate: str
    state: dict[str, Any]

    @property
    def deletion(self) -> Change:
        """The change that deletes it; of its state, only the ids remain."""
        state = {name: value for name, value in self.state.items() if name in _IDENTITY} | {"deleted": True}
        return Change(
            subject=self.subject,
            type=f"{self.kind}.deleted",
            aggregate=self.aggregate,
            data=json.encode(state).decode(),
            deleted=True,
        )


async def require_stopped(connection: AsyncConnection, *, lock: str, tenant_id: str) -> None:
    """Hold the lock of the service until the end of the transaction, so that it cannot start working.

    Args:
        connection: In a transaction.
        lock: The lock of an ``ActiveWorker`` of the service.
        tenant_id: The tenant.

    Raises:
        StillRunningError: The service is running.
    """
    if not await connection.scalar(_IDLE, {"lock": lock, "tenant": tenant_id}):
        raise StillRunningError


class Mend(Protocol):
    """Repairs what a service's own tables and consumers need, in the transaction of the new revision."""

    async def __call__(
        self, transaction: Transaction, unknown: Sequence[Published], *, revision: int, tenant_id: str
    ) -> None:
        """Record the deletion of the aggregates that the database does not know, and what else must end."""


class Restoration:
    """Makes a source's database that lacks published changes safe to publish from; the relay then publishes all of it.

    Args:
        changes: Opens transactions.
        republication: Knows every aggregate of the database.
        bus: Connected when one of the methods is called.
        mend: The service's part.
        source: The source.
        tenant_id: The tenant.
    """

    def __init__(
        self, changes: Changes, republication: Republication, bus: Bus, mend: Mend, *, source: Source, tenant_id: str
    ) -> None:
        self._changes = changes
        self._republication = republication
        self._bus = bus
        self._mend = mend
        self._source: Source = source
        self._tenant_id = tenant_id

    async def restore(self) -> None:
        """Repair the database while the service is stopped.

        Raises:
            StillRunningError: The service is running.
            nats.errors.Error: NATS does not answer.
        """
        await self._changes.prepare()
        await self._repair(is_stopped=True)

    async def repair(self) -> None:
        """Repair the database from the active relay: it holds the lock, and other writes are refused until the commit.

        Raises:
            nats.errors.Error: NATS does not answer.
        """
        await self._repair(is_stopped=False)

    async def _repair(self, *, is_stopped: bool) -> None:
        source, tenant_id = self._source, self._tenant_id
        unknown = await unknown_aggregates(self._bus, self._republication, source=source, tenant_id=tenant_id)
        async with self._changes.transaction(await_publication=False) as transaction:
            if is_stopped:
                await require_stopped(transaction.connection, lock=LOCK, tenant_id=tenant_id)
            revision = await raise_revision(transaction, self._bus, source=source, tenant_id=tenant_id)
            await self._mend(transaction, unknown, revision=revision, tenant_id=tenant_id)


async def raise_revision(transaction: Transaction, bus: Bus, *, source: Source, tenant_id: str) -> int:
    """Raise the source's revision above every earlier one, and empty the outbox; return the revision.

    The number of the last entry of the audit trail is raised as well. The audit outbox stays: entries that were
    published before are dropped as repeats. Changes commit on this server from now on.

    Raises:
        nats.errors.Error: NATS does not answer.
    """
    connection, values = transaction.connection, {"tenant": tenant_id}
    published = await last_published(bus, source, tenant_id)
    current = (await connection.execute(_CURRENT, values)).scalar_one()
    least = REVISIONS_PER_MS * now_ms()
    revision = max(least, published.revision + 1, current + 1)
    server = server_of(connection)
    await connection.execute(_RAISE, {**values, "revision": revision, "least": least, "server": server})
    await connection.execute(_FORGET, values)  # the republication sends the states that these events had
    return int(revision)


async def unknown_aggregates(
    bus: Bus, republication: Republication, *, source: Source, tenant_id: str
) -> list[Published]:
    """Return the last events on the bus of aggregates that the restored database does not know.

    Raises:
        nats.errors.Error: NATS does not answer.
    """
    await ensure_streams(bus)
    known = await republication.subjects()
    watermarks = event_subject(source, tenant_id, "revision", "")
    stream = SNAPSHOT_OF[source] or STREAM_OF[source]
    found = []
    for subject in await _subjects(bus, stream, event_subject(source, tenant_id, ">")):
        if subject in known or subject.startswith(watermarks):
            continue
        try:
            message = await bus.jetstream().get_last_msg(stream, subject)
        except NotFoundError:
            continue  # a newer message of this subject, or its age, removed it
        event = json.decode(message.data or b"", type=CloudEvent)
        kind, _, verb = event.type.rpartition(".")
        if verb != "deleted":
            found.append(Published(subject, kind, event.subject, json.decode(event.data)))
    return found


async def _subjects(bus: Bus, stream: str, pattern: str) -> list[str]:
    """Return the subjects of a stream's messages; the server lists up to 100,000 at once."""
    subjects: list[str] = []
    while True:
        request = json.encode({"subjects_filter": pattern, "offset": len(subjects)})
        info = await stream_info(bus, stream, request, timeout_s=30)
        page = info["state"].get("subjects") or {}
        subjects += page
        if not page or len(subjects) >= info.get("total", 0):
            return subjects


@asynccontextmanager
async def connected(bus: Bus, *, timeout_s: float = 10) -> AsyncGenerator[None, None]:
    """Connect for the duration of the body.

    Raises:
        NatsError: There is no connection in time.
    """
    bus.start()
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await bus.connected()
        except TimeoutError:
            raise NatsError("no connection") from None
        yield
    finally:
        await bus.stop()
