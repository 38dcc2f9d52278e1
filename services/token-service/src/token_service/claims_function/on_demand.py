"""Worker processes that start on first use, and end after a while without use.

A token reserves a *place*: its call is then queued behind a few others at most. A reserved worker would be idle while
the request waits for Redis, and on a busy machine 16 connections would not get one within their 50 ms.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from identity_common.background import end
from identity_common.telemetry.logs import get_logger
from token_service.claims_function.sandbox import ClaimsWorkers, NoWorkerFree, Outcome, Slot, WorkerNotStarted

_log = get_logger(__name__)

_PLACES_PER_WORKER: Final = 8
_CALLED_WITHIN_S: Final = 10.0
"""Seconds: longer than the calls queued before it and their workers' replacements, even if each exceeds its time."""
_IDLE_S: Final = 600.0
_START_AGAIN_S: Final = 1.0
"""Seconds to wait after a failed start: each start takes processes, and uses wait for it."""


class WorkersOnDemand:
    """A pool of workers that starts on first use, and stops when it is idle or with the service.

    Args:
        workers: The pool.
        count: How many workers it has.
        is_needed: Whether the pool is kept although it is idle.
        idle_s: Otherwise the pool stops after this many seconds without use, or up to twice as many.
        clock: Monotonic, in seconds; for tests.
    """

    def __init__(
        self,
        workers: ClaimsWorkers,
        *,
        count: int,
        is_needed: Callable[[], bool] = lambda: False,
        idle_s: float = _IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workers = workers
        self._count = count
        self._is_needed = is_needed
        self._idle_s = idle_s
        self._clock = clock
        self._uses = 0
        self._held = 0
        self._stopping: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(count * _PLACES_PER_WORKER)
        self._running = AsyncExitStack()
        self._is_running = False
        self._starting = asyncio.Lock()
        self._failed_starts = 0
        self._start_again_at = 0.0

    async def start(self) -> None:
        """Start the pool, unless it is running.

        Raises:
            NoWorkerFree: It cannot be started; a use after a second tries again.
        """
        async with self._starting:
            if self._is_running:
                return
            if self._failed_starts and self._clock() < self._start_again_at:
                raise NoWorkerFree
            try:
                await self._running.enter_async_context(self._workers)
            except (WorkerNotStarted, OSError) as error:
                if self._failed_starts == 0:
                    _log.error("claims-workers.failed", error=type(error).__name__, reason=str(error))
                self._failed_starts += 1
                self._start_again_at = self._clock() + _START_AGAIN_S
                raise NoWorkerFree from error
            self._is_running = True
            if self._failed_starts:
                _log.info("claims-workers.started", count=self._failed_starts)
                self._failed_starts = 0
            if self._stopping is None or self._stopping.done():
                self._stopping = asyncio.create_task(self._stop_when_idle(), name="claims-workers-idle")

    async def stop(self) -> None:
        """Stop the pool, if it is running."""
        async with self._starting:
            await self._stop()
        await end(self._stopping)

    async def stop_if_idle(self) -> None:
        """Stop the pool if it is not needed, no place is held and every worker is free."""
        async with self._starting:
            if not self._is_needed() and self._held == 0 and self._workers.free == self._count:
                await self._stop()

    async def hold_place(self, *, within_s: float) -> None:
        """Hold a place for one call, until ``release_place``.

        Args:
            within_s: Seconds to wait for a place, besides the start of the pool.

        Raises:
            NoWorkerFree: None became free in time, or the pool cannot be started.
        """
        if not self._is_running:
            await self.start()
        if not self._places.locked():
            await self._places.acquire()  # without a timer, as this does not wait
        else:
            try:
                async with asyncio.timeout(within_s):
                    await self._places.acquire()
            except TimeoutError:
                raise NoWorkerFree from None
        self._held += 1
        self._uses += 1

    def release_place(self) -> None:
        """Release a place."""
        self._held -= 1
        self._places.release()

    async def run(self, script: str, data: bytes) -> Outcome:
        """Call the function of a script, for the holder of a place.

        Raises:
            NoWorkerFree: The workers of the calls before it were lost, and could not be replaced.
        """
        async with await self._workers.reserve(within_s=_CALLED_WITHIN_S) as worker:
            return await worker.run(script, data)

    async def reserve(self, *, within_s: float) -> Slot:
        """Return a worker that is held until it is released.

        Args:
            within_s: Seconds to wait for a busy one, besides the start of the pool.

        Raises:
            NoWorkerFree: None became free in time, or the pool cannot be started.
        """
        if not self._is_running:
            await self.start()
        self._uses += 1
        return await self._workers.reserve(within_s=within_s)

    async def _stop(self) -> None:
        self._is_running = False  # from here on a use starts the pool again, once it has stopped
        await self._running.aclose()

    async def _stop_when_idle(self) -> None:
        while self._is_running:
            uses = self._uses
            await asyncio.sleep(self._idle_s)
            if self._uses == uses:
                await self.stop_if_idle()
