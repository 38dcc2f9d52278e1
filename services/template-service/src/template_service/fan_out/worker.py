"""The fan-out worker: publishes the new permissions of the members that a change affects, batch by batch.

One worker per service is active, woken by the commit that requests a fan-out. A batch and its progress are one
transaction: after a crash the next worker continues from the last commit. See docs/decisions/0008.
"""

from typing import Final

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from identity_common.background import BackgroundLoop
from identity_common.failures import StoreUnavailable
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.outbox.changes import Changes
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from template_service.fan_out.batch import BATCH, BatchTooLargeError, process_batch
from template_service.fan_out.requests import FAN_OUT_CHANNEL

_log = get_logger(__name__)

_RETRY_S: Final = 0.25
_PUBLICATION_WAIT_S: Final = 1.0

_LOCK: Final = "identity-fan-out"
_WAITING: Final = "SELECT EXISTS (SELECT FROM fan_outs WHERE tenant_id = $1)"


class FanOut:
    """Compares the permissions of affected members with those last published, and records the differences.

    An advisory lock makes the worker of one replica the active one.

    Args:
        changes: Records the events.
        database_url: For the connection that holds the lock and listens.
        tenant_id: The tenant of the members.
        published: Progress of the relay. The worker computes a batch while the previous one is published and gets no
            further ahead, so that the event of an administrator's write queues behind two batches at most.
    """

    def __init__(self, changes: Changes, database_url: str, *, tenant_id: str, published: Progress) -> None:
        self._changes = changes
        self._tenant_id = tenant_id
        self._published = published
        self._recorded = self._recorded_before = -1
        self._limit = BATCH
        self._timed_out_at = -2
        worker = ActiveWorker(self._work, database_url, lock=_LOCK, channel=FAN_OUT_CHANNEL, tenant_id=tenant_id)
        self.loop = BackgroundLoop(
            worker.run,
            name="fan-out",
            pause_s=_RETRY_S,
            log=_log,
            failed="fan-out.failed",
            interrupted="fan-out.interrupted",
            # StoreUnavailable: no connection, or every retry of a batch ended in a deadlock
            expected=(
                OSError,
                SQLAlchemyError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                TimeoutError,
                StoreUnavailable,
            ),
        )

    async def _work(self, holder: LockHolder) -> None:
        while True:
            await holder.turn(lambda: self._take_turn(holder.connection))

    async def _take_turn(self, connection: asyncpg.Connection) -> bool:
        """Process one batch if there is a request; return whether there was."""
        if not await connection.fetchval(_WAITING, self._tenant_id):
            return False
        await self._await_publication()
        await self._process_batch()
        return True

    async def _process_batch(self) -> None:
        """Process one batch; halve the batch size if it was too large, and let it grow again slowly."""
        try:
            recorded = await self._record_batch()
        except BatchTooLargeError:
            self._limit = max(1, self._limit // 2)
        else:
            self._recorded_before, self._recorded = self._recorded, recorded
            self._limit = min(BATCH, self._limit + max(1, self._limit // 8))

    @retry_on_conflict
    async def _record_batch(self) -> int:
        async with self._changes.transaction(await_publication=False) as transaction:
            await process_batch(transaction, self._tenant_id, limit=self._limit)
        return transaction.revision

    async def _await_publication(self) -> None:
        """Wait until the last batch but one is in the stream; after a timeout, not again until the relay advances."""
        if self._timed_out_at == self._published.value:
            return
        try:
            reached = await self._published.reach(self._recorded_before, timeout_s=_PUBLICATION_WAIT_S)
        except TooManyWaitersError:
            return
        self._timed_out_at = -2 if reached else self._published.value
