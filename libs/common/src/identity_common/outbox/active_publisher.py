"""One active publisher among the replicas of a service: it publishes stored rows, and restarts after failures."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import asyncpg
from nats.errors import Error as NatsError

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Publisher, publisher_on
from identity_common.failures import StoreUnavailable
from identity_common.outbox.active_worker import POLL_S, ActiveWorker, LockHolder
from identity_common.outbox.changes import NOTIFY_CHANNEL

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_RETRY_S: Final = 0.25
# An outbox may be empty now and hold many rows a moment later: no plan suits both.
_ALWAYS_PLAN: Final = {"plan_cache_mode": "force_custom_plan"}

Begin = Callable[[asyncpg.Connection], Awaitable[None]]
PublishBatch = Callable[[asyncpg.Connection, Publisher], Awaitable[bool]]


class ActivePublisher:
    """Publishes batches in one replica at a time, woken by commits, until it is stopped.

    Args:
        bus: The bus.
        database_url: ``postgresql+asyncpg://…``, the database of the outbox.
        begin: Called first, and again after each failure and for each new connection to the bus.
        publish_batch: Publishes the next rows and deletes them; returns whether there were any.
        name: Name of the background task.
        lock: Name of the lock that the active replica holds.
        tenant_id: The tenant.
        log: Receives a line for every failure.
        channel: Channel of the notifications that end a pause early.
        poll_s: Seconds until the next look at rows that were not announced.
    """

    def __init__(
        self,
        bus: Bus,
        database_url: str,
        *,
        begin: Begin,
        publish_batch: PublishBatch,
        name: str,
        lock: str,
        tenant_id: str,
        log: "FilteringBoundLogger",
        channel: str = NOTIFY_CHANNEL,
        poll_s: float = POLL_S,
    ) -> None:
        self._bus = bus
        self._begin = begin
        self._publish_batch = publish_batch
        self._worker = ActiveWorker(
            self._work,
            database_url,
            lock=lock,
            channel=channel,
            tenant_id=tenant_id,
            poll_s=poll_s,
            server_settings=_ALWAYS_PLAN,
        )
        self.loop = BackgroundLoop(
            self._run,
            name=name,
            pause_s=_RETRY_S,
            log=log,
            failed="relay.failed",
            interrupted="relay.interrupted",
            expected=(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, NatsError, StoreUnavailable),
        )

    async def _run(self) -> None:
        await self._bus.connected()
        await self._worker.run()

    async def _work(self, holder: LockHolder) -> None:
        while True:
            bus_connection = self._bus.connections
            async with publisher_on(self._bus) as publisher:
                await self._begin(holder.connection)
                holder.wake()
                batch = partial(self._publish_batch, holder.connection, publisher)
                while bus_connection == self._bus.connections:
                    await holder.turn(batch)
