"""The service's part of confining its workers: the filter of system calls, and its own memory."""

import ctypes
import functools
import mmap
import os
import sys
from typing import Any, Final

from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_PR_SET_DUMPABLE: Final = 4

# What the interpreter and the engine need once they run: memory, their one socket, the clock and the timer of a call.
_ALLOWED: Final = (
    "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg", "poll", "ppoll", "close",
    "brk", "munmap", "mremap", "madvise", "futex", "membarrier", "sched_yield", "getrandom",
    "clock_gettime", "clock_getres", "gettimeofday", "times", "getrusage", "setitimer", "restart_syscall",
    "rt_sigreturn", "rt_sigaction", "rt_sigprocmask", "sigaltstack", "getpid", "gettid", "exit", "exit_group",
)  # fmt: skip
_ALLOWED_IF_NOT_EXECUTABLE: Final = ("mmap", "mprotect")


def close_memory_to_others() -> None:
    """Make this process non-dumpable: no other process of its user may read its memory, which holds the signing keys.

    In a cluster the workers run as the same user as the service. It also means no core dumps, and that only root may
    attach a debugger. A refusal by the system is logged.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        _log.error("claims-workers.memory-is-open", error=os.strerror(ctypes.get_errno()))


@functools.cache
def seccomp_program() -> bytes:
    """Return the filter of a worker's system calls, for the kernel to load; empty where libseccomp is missing.

    What is not on the list fails with EPERM. Memory is never writable and executable, since none is made executable.
    """
    try:
        import pyseccomp  # noqa: PLC0415 - fails to import without libseccomp

        return _compiled(pyseccomp)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        _log.warning("claims-worker.without-seccomp", error=str(error))
        return b""


def _compiled(seccomp: Any) -> bytes:
    calls = seccomp.SyscallFilter(seccomp.ERRNO(1))
    for name in _ALLOWED:
        calls.add_rule(seccomp.ALLOW, name)
    for name in _ALLOWED_IF_NOT_EXECUTABLE:
        calls.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, mmap.PROT_EXEC, 0))
    with os.fdopen(os.memfd_create("seccomp"), "w+b") as file:  # in a container nothing can be written on disk
        calls.export_bpf(file)
        file.seek(0)
        return file.read()
