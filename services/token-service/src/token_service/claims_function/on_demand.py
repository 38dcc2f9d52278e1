"""Worker processes that start when the first one is asked for: without a function there are none."""

import asyncio
from contextlib import AsyncExitStack

from identity_common.telemetry.logs import get_logger
from token_service.claims_function.sandbox import ClaimsWorkers, NoWorkerFree, Slot, WorkerNotStarted

_log = get_logger(__name__)


class WorkersOnDemand:
    """A pool of workers that is started by its first use, and stopped with the service."""

    def __init__(self, workers: ClaimsWorkers) -> None:
        self._workers = workers
        self._running = AsyncExitStack()
        self._is_running = False
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the pool, unless it is running.

        Raises:
            NoWorkerFree: It cannot be started; the next use tries again.
        """
        async with self._starting:
            if self._is_running:
                return
            try:
                await self._running.enter_async_context(self._workers)
            except (WorkerNotStarted, OSError) as error:
                _log.error("claims-workers.failed", error=type(error).__name__, reason=str(error))
                raise NoWorkerFree from error
            self._is_running = True

    async def stop(self) -> None:
        """Stop the pool, if it is running."""
        async with self._starting:
            await self._running.aclose()
            self._is_running = False

    async def reserve(self, *, within_s: float) -> Slot:
        """Return a worker that is held until it is released.

        Args:
            within_s: How long to wait for a busy one; the start of the pool is waited for as well.

        Raises:
            NoWorkerFree: None became free in time, or the pool cannot be started.
        """
        if not self._is_running:
            await self.start()
        return await self._workers.reserve(within_s=within_s)
