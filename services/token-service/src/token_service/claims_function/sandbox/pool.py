"""A pool of workers: reserving one, and replacing those that are gone."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Self

from identity_common.telemetry.logs import get_logger
from token_service.claims_function.sandbox.confinement import seccomp_program
from token_service.claims_function.sandbox.limits import Limits
from token_service.claims_function.sandbox.outcomes import (
    WORKER_DIED,
    Denied,
    Outcome,
    Problem,
    read_check,
    read_run,
)
from token_service.claims_function.sandbox.process import WorkerLost, WorkerNotStarted, WorkerProcess

_log = get_logger(__name__)

_RESTART_PAUSE_S: Final = 1.0
# The engine was stopped in the middle, or nothing is known about it.
_SPOILED_BY: Final = frozenset({"time", "memory", "microtasks", "worker-died"})


class NoWorkerFree(Exception):  # noqa: N818 - the name is what happened
    """Every worker is busy, or being replaced."""


class NotChecked(Exception):  # noqa: N818 - the name is what happened
    """A check ended before its result was known: a busy machine, or a worker that died; the script may be right.

    The message is the reason: ``time`` or ``worker-died``.
    """


class ClaimsWorkers:
    """A pool with a fixed number of workers; an async context manager.

    Entering it starts the workers.

    Raises:
        WorkerNotStarted: On entering: the engine is not installed, or does not run here.
    """

    def __init__(self, limits: Limits, count: int) -> None:
        self._limits = limits
        self._count = count
        self._free: deque[WorkerProcess] = deque()  # in turns: the last one still makes its next context
        self._all: set[WorkerProcess] = set()
        self._ending: set[WorkerProcess] = set()
        self._waiting: deque[asyncio.Future[WorkerProcess]] = deque()
        self._replacements: set[asyncio.Task[None]] = set()
        self._closing = False
        self._failed_starts = 0  # of replacements, since the last one that succeeded
        self._seccomp = b""

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return sorted(worker.pid for worker in self._all)

    @property
    def free(self) -> int:
        """How many workers are neither reserved nor being replaced."""
        return len(self._free)

    async def __aenter__(self) -> Self:
        try:
            await self._start_all()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def reserve(self, *, within_s: float = 0.05) -> "Slot":
        """Return a worker for exclusive use, as a slot to enter.

        Args:
            within_s: Seconds to wait, also for another worker should this one die in a call.

        Raises:
            NoWorkerFree: None became free in time.
        """
        return Slot(self, await self.take(within_s=within_s), self._limits, wait_s=within_s)

    async def take(self, *, within_s: float) -> WorkerProcess:
        """Return a worker for exclusive use; it must be given back.

        Raises:
            NoWorkerFree: None became free in time.
        """
        if self._free:
            return self._free.popleft()
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[WorkerProcess] = loop.create_future()
        self._waiting.append(waiting)
        expiry = loop.call_later(within_s, _expire, waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._offer(waiting.result())  # a worker was handed over in the same tick
            raise
        finally:
            expiry.cancel()

    def give_back(self, worker: WorkerProcess, *, spoiled: bool) -> None:
        """Take a reserved worker back; a spoiled one is replaced in the background."""
        if spoiled:
            self._retire(worker)
        else:
            self._offer(worker)

    def _offer(self, worker: WorkerProcess) -> None:
        if self._closing or worker.ended.done():
            self._retire(worker)
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(worker)
                return
        self._free.append(worker)

    async def _start_all(self) -> None:
        self._closing = False  # it may have been stopped, by a start that failed
        self._seccomp = await _seccomp_program()
        starts = (self._start_one() for _ in range(self._count))
        for failed in await asyncio.gather(*starts, return_exceptions=True):  # returns when none is under way
            if failed is not None:
                raise failed

    async def _start_one(self) -> None:
        worker = await WorkerProcess.start(self._limits, self._seccomp)
        self._all.add(worker)
        worker.ended.add_done_callback(lambda _: self._when_ended(worker))
        self._offer(worker)

    def _when_ended(self, worker: WorkerProcess) -> None:
        if worker in self._free:  # a reserved one is missed when it is given back
            self._free.remove(worker)
            self._retire(worker)

    def _retire(self, worker: WorkerProcess) -> None:
        if worker not in self._all:
            return
        self._all.remove(worker)
        self._ending.add(worker)
        worker.end()
        if self._closing:
            return
        task = asyncio.get_running_loop().create_task(self._replace(worker))
        self._replacements.add(task)
        task.add_done_callback(self._replacements.discard)

    async def _replace(self, worker: WorkerProcess) -> None:
        await worker.wait()
        self._ending.discard(worker)
        while True:
            try:
                await self._start_one()
            except Exception as error:  # noqa: BLE001 - without another attempt a worker is missing
                if self._failed_starts == 0:
                    _log.error("claims-worker.not-started", error=type(error).__name__, reason=str(error))
                self._failed_starts += 1
                await asyncio.sleep(_RESTART_PAUSE_S)
            else:
                if self._failed_starts:
                    _log.info("claims-worker.started", count=self._failed_starts)
                    self._failed_starts = 0
                return

    async def _stop(self) -> None:
        self._closing = True
        for task in tuple(self._replacements):
            task.cancel()
        await asyncio.gather(*self._replacements, return_exceptions=True)
        workers = self._all | self._ending
        self._free.clear()
        self._all.clear()
        self._ending.clear()
        await asyncio.gather(*(worker.stop() for worker in workers))


class Slot:
    """A reserved worker; leaving it gives the worker back.

    One call at a time. A call whose worker dies, and not because of a bound, is repeated once with another worker: the
    worker may have been dead before, and a script has no effects. After a call that exceeded a bound of time, memory or
    microtasks, or lost its second worker, the slot has no worker any more, and further calls answer ``worker-died``:
    reserve again.
    """

    def __init__(self, workers: ClaimsWorkers, worker: WorkerProcess, limits: Limits, *, wait_s: float) -> None:
        self._workers = workers
        self._worker = worker
        self._limits = limits
        self._wait_s = wait_s
        self._spoiled = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._workers.give_back(self._worker, spoiled=self._spoiled)

    async def run(self, script: str, data: bytes) -> Outcome:
        """Call the function of ``script`` in a fresh context.

        ``data`` is the JSON of ``{token, context, environmentVariables}``; ``api`` is added to it.

        Raises:
            NoWorkerFree: The worker died, and no other one became free in time.
        """
        try:
            answer = await self._call(b"R", script, data)
        except WorkerLost as lost:
            return Problem("time", f"it ran longer than {self._limits.time_ms} ms") if lost.out_of_time else WORKER_DIED
        outcome = answer if isinstance(answer, Problem) else read_run(answer, self._limits)
        if isinstance(outcome, Denied):
            self._spoiled = outcome.out_of_time
        elif isinstance(outcome, Problem) and outcome.reason in _SPOILED_BY:
            self._spoiled = True
        return outcome

    async def check(self, script: str) -> Problem | None:
        """Parse ``script`` and look for a declaration of the function at its top level; none of it is run.

        A script has a problem, too, if parsing it exceeds the memory of a call, or its time in CPU time.

        Raises:
            NotChecked: It did not end; nothing is known about the script.
            NoWorkerFree: The worker died, and no other one became free in time.
        """
        try:
            answer = await self._call(b"C", script, b"")
        except WorkerLost as lost:
            if lost.of_cpu:
                return Problem("time", f"it takes longer than {self._limits.time_ms} ms to parse")
            raise NotChecked("time" if lost.out_of_time else "worker-died") from None
        problem = answer if isinstance(answer, Problem) else read_check(answer)
        self._spoiled = problem is not None and problem.reason in _SPOILED_BY
        if problem is not None and problem.reason == "memory":
            return Problem("memory", f"it takes more than {self._limits.memory_mib} MiB to parse")
        if self._spoiled and problem is not None:
            raise NotChecked(problem.reason)
        return problem

    async def _call(self, kind: bytes, script: str, data: bytes) -> bytes | Problem:
        if self._spoiled:
            return WORKER_DIED
        try:
            encoded = script.encode()
        except UnicodeEncodeError:
            return Problem("syntax", "the script is not valid Unicode")
        self._spoiled = True  # until there is an answer: a call that is cancelled leaves the worker busy
        answer = await self._call_once_more(kind, encoded, data)
        self._spoiled = False
        return answer

    async def _call_once_more(self, kind: bytes, script: bytes, data: bytes) -> bytes:
        """Call the worker, and another one should it die."""
        try:
            return await self._worker.call(kind, script, data)
        except WorkerLost as lost:
            if lost.out_of_time:
                raise
        self._workers.give_back(self._worker, spoiled=True)
        self._worker = await self._workers.take(within_s=self._wait_s)
        return await self._worker.call(kind, script, data)


async def _seccomp_program() -> bytes:
    """Return the filter; in a thread, because the first call looks for libseccomp."""
    try:
        return await asyncio.to_thread(seccomp_program)
    except RuntimeError as error:  # a limit of threads
        raise WorkerNotStarted(str(error)) from error


def _expire(waiting: "asyncio.Future[WorkerProcess]") -> None:
    if not waiting.done():
        waiting.set_exception(NoWorkerFree("every worker of the claims function is busy"))
