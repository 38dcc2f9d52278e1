"""Child processes that cannot outlive this one, and the common part of the three servers.

Children get a session of their own, so that Ctrl-C reaches only this process, which then stops them gracefully. They
die with it, however it dies: the kernel sends them a signal (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import msgspec

from all_in_one.embedded.errors import EmbeddedError, PortTaken, ServerFailed, ServerStopped

# The servers do not inherit our environment: it may contain secrets, and LD_*, LC_* and PG* would change them.
_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.005
_LARGEST_LOG = 8 * 1024 * 1024


class Account(msgspec.Struct, frozen=True):
    """The operating system's user and group that a child runs as."""

    uid: int
    gid: int


def die_with_parent(parent: int, last_signal: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process the signal when the process ``parent`` ends; exit if it already has.

    Call it after a change of user, which would reset it. Strictly, the signal comes when the *thread* that forked this
    process ends.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(last_signal), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


# A single thread forks all children and lives as long as the process, since its end would be theirs. So a server can be
# started from any thread, even a short-lived one.
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forker")


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    last_signal: signal.Signals,
    account: Account | None = None,
    enter: Callable[[], None] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child that writes to ``log``, runs as ``account`` and gets ``last_signal`` when this process dies.

    ``enter`` is called in the child before the command; like the rest of ``preexec_fn`` it must take no lock.
    """
    parent = os.getpid()

    def prepare() -> None:
        if enter is not None:
            enter()
        die_with_parent(parent, last_signal)

    def fork() -> subprocess.Popen[bytes]:
        with open(log, "ab", opener=_private) as output:
            return subprocess.Popen(  # noqa: S603
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=dict(_ENVIRONMENT),
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=prepare,  # noqa: PLW1509 - only system calls, no locks
            )

    try:
        return _forker.submit(fork).result()
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(f"cannot run {command[0]}: {error}") from error


def run(
    command: Sequence[str | Path],
    *,
    name: str,
    log: Path,
    account: Account | None = None,
    enter: Callable[[], None] | None = None,
) -> None:
    """Run a command to its end; it and its children are gone when this returns.

    Raises:
        ServerFailed: It failed; the error quotes the end of its log.
    """
    start = _size(log)
    child = spawn(command, log=log, last_signal=signal.SIGKILL, account=account, enter=enter)
    try:
        failed = child.wait() != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if failed:
        raise ServerFailed(name, _reason(log, start), log)


def _reason(log: Path, start: int) -> str:
    """Return why a server exited, as one line from the log after byte ``start``."""
    with log.open("rb") as file:
        file.seek(start)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "[FTL]", "error:"))]
    return " / ".join((errors or lines)[-2:]) or "it logged nothing"


class Server(ABC):
    """A handle to stop, kill and start a server as a child process, always on the same port and data."""

    name: ClassVar[str]
    last_signal: ClassVar[signal.Signals] = signal.SIGKILL
    """Sent to the server when this process dies."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    """Makes the server finish its work and exit, without waiting for its clients."""

    def __init__(self, *, port: int, log: Path) -> None:
        self.port = port
        self.log = log
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._account: Account | None = None

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            EmbeddedError: It is not running.
        """
        if self._process is None:
            raise EmbeddedError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it is ready; a no-op if it runs.

        Raises:
            EmbeddedError: It failed to start.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the server without waiting until it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        self._prepare()
        if _size(self.log) > _LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".log.1"))
        self._log_start = _size(self.log)
        self._process = spawn(self._command(), log=self.log, last_signal=self.last_signal, account=self._account)

    def wait_until_ready(self) -> None:
        """Return when the server is ready.

        Reads the server's own report instead of connecting: another listener on the port would receive a password.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None:
                reason = _reason(self.log, self._log_start)
                failure = PortTaken if "address already in use" in reason.lower() else ServerFailed
                raise failure(self.name, reason, self.log)
            if time.monotonic() > deadline:
                raise ServerFailed(self.name, f"not ready after {_START_TIMEOUT_S:.0f} s", self.log)
            time.sleep(_POLL_S)

    def require_running(self) -> None:
        """Require that the server has not exited by itself.

        Raises:
            ServerStopped: It has.
        """
        if self._process is not None and self._process.poll() is not None:
            raise ServerStopped(self.name, _reason(self.log, self._log_start), self.log)

    def begin_stop(self) -> None:
        """Ask the server to exit, without waiting; ``stop`` then waits."""
        self._signal(self.stop_signal)
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server gracefully; kill it if that takes longer than 10 s. A no-op if it is not running."""
        if self._process is None:
            return
        self.begin_stop()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash would."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # a no-op if the child has already exited

    def _logged(self, text: str) -> bool:
        """Whether the log contains the text since the launch."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return text.encode() in file.read()

    @abstractmethod
    def _prepare(self) -> None:
        """Write and check the files that the server needs."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """Return the program and its arguments; every local user can read them, so they contain no secret."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server reports that it is ready."""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
