"""The worker behind the requests: tells the bus whose permissions a change has touched, batch by batch.

One worker a service is active, woken by the commit of whoever asks for a fan-out. A batch and how far it has come are
one transaction: after a crash the next worker goes on where the last commit was. See docs/decisions/0008.
"""

import asyncio
import contextlib
from typing import Final

import asyncpg
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from identity_common.background import end
from identity_common.http.api_errors import ApiError
from identity_common.outbox.changes import Changes
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from template_service.fan_out.batch import BATCH, BatchTooLargeError, look_at_batch
from template_service.fan_out.requests import FAN_OUT_CHANNEL

_log = get_logger(__name__)

_POLL_S: Final = 1.0
_STANDBY_S: Final = 0.5
_RETRY_S: Final = 0.25
_PUBLICATION_WAIT_S: Final = 1.0

_LOCK: Final = "SELECT pg_try_advisory_lock(hashtext('identity-fan-out'), hashtext($1))"
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
        url = make_url(database_url).set(drivername="postgresql")
        self._database_url = url.render_as_string(hide_password=False)
        self._tenant_id = tenant_id
        self._published = published
        self._recorded = self._recorded_before = -1
        self._limit = BATCH
        self._waited_in_vain_at = -2
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, in the background, until ``stop``."""
        self._task = asyncio.create_task(self._keep_working(), name="fan-out")

    async def stop(self) -> None:
        """Stop; what is not done yet stays asked for."""
        await end(self._task)

    async def _keep_working(self) -> None:
        while True:
            try:
                await self._work_while_active()
            except (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
                _log.warning("fan-out.interrupted", error=type(error).__name__)
            except ApiError:  # the victim of every deadlock
                _log.warning("fan-out.interrupted", error="conflict")
            except Exception as error:  # noqa: BLE001 - a loop that must not end; it is logged and starts again
                _log.error("fan-out.failed", error=type(error).__name__, exc_info=error)
            await asyncio.sleep(_RETRY_S)

    async def _work_while_active(self) -> None:
        """Hold the lock and work until something breaks; without the lock, look again a little later."""
        connection = await asyncpg.connect(self._database_url, timeout=5, command_timeout=30)
        try:
            while not await connection.fetchval(_LOCK, self._tenant_id):  # noqa: ASYNC110 - a lock of the database
                await asyncio.sleep(_STANDBY_S)
            wake = asyncio.Event()
            await connection.add_listener(FAN_OUT_CHANNEL, lambda *_: wake.set())
            while True:
                wake.clear()
                if await connection.fetchval(_WAITING, self._tenant_id):
                    await self._await_publication()
                    await self._work()
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):  # wait_for of 3.11 may lose a cancellation
                        await wake.wait()
        finally:
            # terminate() does not wait for a server that may be gone; its session ends and the lock with it
            connection.terminate()

    async def _work(self) -> None:
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
