"""One worker process, as the service sees it."""

import asyncio
import importlib.util
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final, Self, cast

import msgspec

from identity_common.telemetry.logs import get_logger
from token_service.claims_function.sandbox.limits import Limits
from token_service.claims_function.sandbox.outcomes import longest_answer

_log = get_logger(__name__)

_PROGRAM: Final = Path(__file__).with_name("worker.py")


def _javascript(name: str) -> str:
    """Return a file without indentation and comments, because it is parsed for every call."""
    lines = map(str.strip, Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line.partition(" // ")[0] for line in lines if not line.startswith("//"))


_HARNESS: Final = _javascript("harness.js")
_DESCRIBE: Final = _javascript("describe.js")
_START_TIMEOUT_S: Final = 10.0
# The kernel kills a worker at its wall time. This is for one that even then does not end, such as a stopped process.
_GRACE_S: Final = 0.5
# How often to poll for the end of a killed process, as subprocess.Popen.wait does.
_FIRST_POLL_S: Final = 0.0005
_LONGEST_POLL_S: Final = 0.05


class WorkerNotStarted(Exception):  # noqa: N818 - the name is what happened
    """The worker program does not run here; the message says why."""


class WorkerLost(Exception):  # noqa: N818 - the name is what happened
    """The process ended before it answered.

    Attributes:
        out_of_time: Whether it was ended because its time was over.
        of_cpu: Whether that was the CPU time of a check, which other processes do not affect.
    """

    def __init__(self, *, out_of_time: bool, of_cpu: bool = False) -> None:
        super().__init__("out of time" if out_of_time else "died")
        self.out_of_time = out_of_time
        self.of_cpu = of_cpu


class WorkerProcess(asyncio.Protocol):
    """A process that answers one call at a time."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self._process = process
        self._limits = limits
        self._longest_answer = longest_answer(limits)
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._late = False
        self._stopped = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the process has ended and was waited for. Await ``wait()``: cancelling it would cancel this."""

    @classmethod
    async def start(cls, limits: Limits, seccomp: bytes) -> Self:
        """Start a process and wait until it has dropped its privileges.

        Args:
            limits: The limits of a call.
            seccomp: The filter of its system calls; empty for none.

        Raises:
            WorkerNotStarted: The engine is not installed, or the process failed.
        """
        engine = importlib.util.find_spec("_quickjs")
        if engine is None or engine.origin is None:
            raise WorkerNotStarted("quickjs-ng is not installed")
        ours, theirs = socket.socketpair()
        with theirs:
            # Not asyncio's subprocesses, which need a child watcher and pipes. vfork and exec take a millisecond,
            # in which a thread would hold up the event loop as well: the interpreter keeps its lock during them.
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - nothing of it is input
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_PROGRAM)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,  # Ctrl-C is for the service, which ends its workers itself
            )
        worker = cls(process, limits)
        ours.setblocking(False)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=ours)
        except BaseException:
            ours.close()
            process.kill()
            process.wait()
            raise
        try:
            await worker._confirm_start(Path(engine.origin).parent, seccomp)
        except BaseException:
            await worker.stop()
            raise
        return worker

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def call(self, kind: bytes, script: bytes, data: bytes = b"") -> bytes:
        """Send a call and return the body of the answer. A call that is cancelled ends the process.

        Raises:
            WorkerLost: The process ended instead.
        """
        body = b"".join((kind, struct.pack("!I", len(script)), script, data))
        return await self._ask(body, self._limits.time_ms / 1000 + _GRACE_S)

    def end(self) -> None:
        """End the process; ``ended`` follows."""
        self._stopped = True
        self._process.kill()
        self._transport.abort()

    async def stop(self) -> None:
        """End the process and wait for it."""
        self.end()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await asyncio.wait((self.ended,))

    async def _confirm_start(self, engine_directory: Path, seccomp: bytes) -> None:
        start = {
            "engine_directory": str(engine_directory),
            "wall_ms": self._limits.time_ms,
            "memory_bytes": self._limits.memory_mib << 20,
            "result_bytes": self._limits.result_bytes,
            "microtasks": self._limits.microtasks,
            "harness": _HARNESS,
            "describe": _DESCRIBE,
            "seccomp": seccomp.hex(),
        }
        try:
            answer = await self._ask(msgspec.json.encode(start), _START_TIMEOUT_S)
        except WorkerLost as error:
            raise WorkerNotStarted(f"the worker of the claims function {error} as it started") from error
        if answer[:1] != b"S":
            raise WorkerNotStarted(f"the worker of the claims function failed: {msgspec.json.decode(answer[1:])}")
        for lacking in msgspec.json.decode(answer[1:], type=list[str]):
            _log.warning("claims-worker.sandbox-degraded", reason=lacking)

    async def _ask(self, body: bytes, timeout_s: float) -> bytes:
        if self.ended.done():
            raise WorkerLost(out_of_time=False)
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        deadline = loop.call_later(timeout_s, self._end_late)
        if not self._transport.is_closing():  # else the process ends, and then the answer fails
            self._transport.write(struct.pack("!I", len(body)) + body)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self._stopped = True
            self._process.kill()  # it still works on this call
            raise
        finally:
            deadline.cancel()
            self._answer = None

    def _end_late(self) -> None:
        self._late = True
        self._process.kill()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Collect the answer; what was not asked for, or is too long, ends the process."""
        self._received += data
        if len(self._received) < 4:
            return
        length = 4 + int.from_bytes(self._received[:4], "big")
        if length > 4 + self._longest_answer or len(self._received) > length or self._answer is None:
            self._process.kill()
        elif len(self._received) == length and not self._answer.done():
            self._answer.set_result(bytes(self._received[4:]))
            self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        """Kill the process, then fail the waiting call with how it ended."""
        self._process.kill()  # no effect if it is already ending
        self._reaper = asyncio.get_running_loop().create_task(self._reap())

    async def _reap(self) -> None:
        pause_s = _FIRST_POLL_S
        while (status := self._process.poll()) is None:  # not in a thread: where threads are limited, it may not start
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)
        of_cpu = status == -signal.SIGPROF
        out_of_time = self._late or of_cpu or status == -signal.SIGALRM
        if not out_of_time and not self._stopped:
            _log.warning("claims-worker.died", status=status)  # negative: a signal
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(WorkerLost(out_of_time=out_of_time, of_cpu=of_cpu))
        self.ended.set_result(None)
