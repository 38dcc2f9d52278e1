"""The worker behind the requests: tells the bus whose permissions a change has touched, batch by batch.

One worker a service is active, woken by the commit of whoever asks for a fan-out. A batch and how far it has come are
one transaction: after a crash the next worker goes on where the last commit was. See docs/decisions/0008.
"""

from typing import Final

import asyncpg
from sqlalchemy.exc import SQLAlchemyError

from identity_common.background import BackgroundLoop
from identity_common.http.api_errors import ApiError
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.outbox.changes import Changes
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from template_service.fan_out.batch import BATCH, BatchTooLargeError, look_at_batch
from template_service.fan_out.requests import FAN_OUT_CHANNEL

_log = get_logger(__name__)

_RETRY_S: Final = 0.25
_PUBLICATION_WAIT_S: Final = 1.0

_LOCK: Final = "identity-fan-out"
_WAITING: Final = "SELECT EXISTS (SELECT FROM fan_outs WHERE tenant_id = $1)"


class FanOut:
    """Looks at the members that changes have touched, and records what is different from what was last published.

    An advisory lock makes one worker of a service's replicas the active one.

    Args:
        changes: What the events are recorded through.
        database_url: For the connection that holds the lock and is notified.
        tenant_id: Whose members.
        published: How far the events are in the stream: the worker looks at a batch while the one before is published,
            and goes no further ahead, so that the event of an administrator's write has two batches before it and not
            all members of a role.
    """

    def __init__(self, changes: Changes, database_url: str, *, tenant_id: str, published: Progress) -> None:
        self._changes = changes
        self._tenant_id = tenant_id
        self._published = published
        self._recorded = self._recorded_before = -1
        self._limit = BATCH
        self._waited_in_vain_at = -2
        worker = ActiveWorker(self._work, database_url, lock=_LOCK, channel=FAN_OUT_CHANNEL, tenant_id=tenant_id)
        self._loop = BackgroundLoop(
            worker.run,
            name="fan-out",
            pause_s=_RETRY_S,
            log=_log,
            failed="fan-out.failed",
            interrupted="fan-out.interrupted",
            # ApiError: a batch was the victim of every deadlock
            expected=(
                OSError,
                SQLAlchemyError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                TimeoutError,
                ApiError,
            ),
        )

    def start(self) -> None:
        """Begin to work, in the background, until ``stop``."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; what is not done yet stays asked for."""
        await self._loop.stop()

    async def _work(self, holder: LockHolder) -> None:
        while True:
            await holder.turn(lambda: self._take_turn(holder.connection))

    async def _take_turn(self, connection: asyncpg.Connection) -> bool:
        """Do one batch, if one was asked for; return whether it was."""
        if not await connection.fetchval(_WAITING, self._tenant_id):
            return False
        await self._await_publication()
        await self._do_batch()
        return True

    async def _do_batch(self) -> None:
        """Do one batch, or learn that it must be smaller; afterwards, little by little, they may be larger again."""
        try:
            recorded = await self._look_at_batch()
        except BatchTooLargeError:
            self._limit = max(1, self._limit // 2)
        else:
            self._recorded_before, self._recorded = self._recorded, recorded
            self._limit = min(BATCH, self._limit + max(1, self._limit // 8))

    @retry_on_conflict
    async def _look_at_batch(self) -> int:
        async with self._changes.transaction(await_publication=False) as transaction:
            await look_at_batch(transaction, self._tenant_id, limit=self._limit)
        return transaction.revision

    async def _await_publication(self) -> None:
        """Wait until the last batch but one is in the stream; while the bus is away, once."""
        if self._waited_in_vain_at == self._published.value:
            return
        try:
            reached = await self._published.reach(self._recorded_before, timeout_s=_PUBLICATION_WAIT_S)
        except TooManyWaitersError:
            return
        self._waited_in_vain_at = -2 if reached else self._published.value
