"""Background tasks: loops that survive errors, runs shared by concurrent callers, and reliable cancellation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from identity_common.failures import log_fields

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_CANCEL_AGAIN_S: Final = 0.05
_WARN_AGAIN_S: Final = 60.0

Work = Callable[[], Awaitable[None]]


class BackgroundLoop:
    """Runs a piece of work repeatedly in its own task, until ``stop``.

    Args:
        work: One run. When it returns or fails, the next one begins after a pause.
        name: The name of the task.
        pause_s: Seconds between two runs, or a function that returns them.
        log: Receives a line for every run that failed.
        failed: Event of the error, with a traceback, that is logged for an exception that is not expected.
        interrupted: Event of the warning that is logged for an expected exception, once a minute while it
            repeats; another store or cause is another line.
        expected: Exceptions that an operator should know of but a developer need not, such as a store that is down.
        resume_on: Exceptions after which the next run begins at once; they are not logged.
    """

    def __init__(
        self,
        work: Work,
        *,
        name: str,
        pause_s: float | Callable[[], float],
        log: "FilteringBoundLogger",
        failed: str,
        interrupted: str = "",
        expected: tuple[type[Exception], ...] = (),
        resume_on: tuple[type[Exception], ...] = (),
    ) -> None:
        self._work = work
        self._name = name
        self._pause_s = pause_s
        self._log = log
        self._failed = failed
        self._interrupted = interrupted
        self._expected = expected
        self._resume_on = resume_on
        self._warned: tuple[dict[str, str], float] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to run."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancel the current run and return when it has ended."""
        await end(self._task)

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except self._resume_on:
                continue
            except self._expected as error:
                self._warn(log_fields(error))
            except Exception as error:  # noqa: BLE001 - the loop must survive every error
                self._log.error(self._failed, **log_fields(error), exc_info=error)
            await asyncio.sleep(self._pause_s() if callable(self._pause_s) else self._pause_s)

    def _warn(self, fields: dict[str, str]) -> None:
        now = time.monotonic()
        if self._warned is None or self._warned[0] != fields or now - self._warned[1] >= _WARN_AGAIN_S:
            self._warned = (fields, now)
            self._log.warning(self._interrupted, **fields)


class SharedRun:
    """Lets concurrent callers share one run of a piece of work that begins after each of them has asked.

    A run that has already begun when a caller asks may miss what this caller needs, so the caller gets the next one.

    Args:
        work: The piece of work.
        name: The name of its tasks.
    """

    def __init__(self, work: Work, *, name: str) -> None:
        self._work = work
        self._name = name
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def next(self) -> asyncio.Task[None]:
        """Return the next run; it is shared, so a caller must not cancel it (``asyncio.wait``, ``asyncio.shield``)."""
        if self._next is None:
            self._next = asyncio.create_task(self._run_after(self._current), name=self._name)
        return self._next

    async def stop(self) -> None:
        """Cancel the current and the next run and return when they have ended."""
        await end(self._next, self._current)

    async def _run_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))
        self._current, self._next = self._next, None
        await self._work()


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return when they have ended; repeat a cancellation that was lost.

    ``asyncio.wait_for`` of Python 3.11 swallows a cancellation that arrives in the same tick of the event loop as the
    result that it waits for. The drivers of the bus and the database use it: a loop around such a call continues as if
    it had never been cancelled, and a caller that awaits its end hangs. Our own code uses ``asyncio.timeout``, which
    does not have this flaw.
    """
    pending = {task for task in tasks if task is not None}
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_CANCEL_AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # marks it as retrieved: how a cancelled task fails is of no interest
