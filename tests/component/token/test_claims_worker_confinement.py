"""What a worker may do: nothing but compute, with no environment and one descriptor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import token_service.claims_function.sandbox.process
from tests.support.captured_logs import captured_logs
from tests.support.claims_pool import ECHO, SANDBOX, run
from tests.support.claims_workers import kinds_of_descriptors, of_process
from token_service.claims_function.sandbox import Claims, ClaimsWorkers, Limits, WorkerNotStarted
from token_service.claims_function.sandbox.confinement import seccomp_program

pytestmark = pytest.mark.usefixtures("all_workers_are_back")

MAIN_MEMORY: Final = 20 * 1024

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc, prctl and seccomp are Linux's")


@linux_only
async def test_a_worker_is_confined(workers: ClaimsWorkers) -> None:
    await run(workers, ECHO, {})
    for pid in workers.pids:
        status = dict(line.split(":\t", 1) for line in of_process(pid, "status").splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
        assert int(status["VmHWM"].split()[0]) < MAIN_MEMORY
        limits = {line[:26].strip(): line[26:].split()[0] for line in of_process(pid, "limits").splitlines()}
        bounded = ("Max open files", "Max processes", "Max core file size", "Max file size")
        assert [limits[name] for name in bounded] == ["0"] * 4
        assert int(limits["Max address space"]) < 512 << 20
        if os.geteuid() == 0:
            assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
            assert status["CapEff"] == "0" * 16
            assert of_process(pid, "environ") == ""
            assert kinds_of_descriptors(pid) == ["socket"]


@linux_only
async def test_without_libseccomp_a_worker_runs_and_the_log_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)  # as on a machine where it cannot be imported
    seccomp_program.cache_clear()
    try:
        with captured_logs("token-service") as log:
            async with ClaimsWorkers(Limits(), 1) as workers:
                assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})
                assert "Seccomp:\t0" in of_process(workers.pids[0], "status")
    finally:
        seccomp_program.cache_clear()
    events = [json.loads(line)["event"] for line in log.getvalue().splitlines()]  # a service may log others meanwhile
    assert [event for event in events if event.startswith("claims-worker.")] == ["claims-worker.without-seccomp"]


REPORTS_ITS_START: Final = """
import json, os
os.read(0, 1 << 20)
with open("/proc/self/environ") as file:
    environment = file.read()
descriptors = {}
for number in os.listdir("/proc/self/fd"):
    try:
        descriptors[number] = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:
        pass  # it was the directory's
body = b"F" + json.dumps(json.dumps([environment, descriptors])).encode()
os.write(0, len(body).to_bytes(4, "big") + body)
"""


@linux_only
async def test_a_worker_is_started_with_no_environment_and_one_descriptor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it finds before it gives up anything: its program is another one here. Every user may run this test."""
    program = tmp_path / "program.py"
    program.write_text(REPORTS_ITS_START)
    monkeypatch.setattr(token_service.claims_function.sandbox.process, "_PROGRAM", program)
    monkeypatch.setenv("KEY_ENCRYPTION_KEYS", "a secret")

    with tmp_path.joinpath("inherited").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        with pytest.raises(WorkerNotStarted) as error:
            async with ClaimsWorkers(Limits(), 1):
                pass
    environment, descriptors = json.loads(str(error.value).partition("failed: ")[2])
    assert environment == ""
    assert descriptors == {"0": "socket", "1": "/dev/null", "2": "/dev/null"}


ATTEMPTS: Final = """
import ctypes, json, os, socket, sys
sys.path.insert(0, sys.argv[1])
import worker

os.dup2(1, 0)  # the descriptor that stays open
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getppid()
descriptor = os.open("/", os.O_RDONLY)
lacking = worker.confine(32 << 20, bytes.fromhex(sys.argv[2]))
outcomes = {}

def attempt(name, action):
    try:
        action()
        outcomes[name] = "done"
    except OSError as error:
        outcomes[name] = type(error).__name__

def executable_memory():
    libc.mmap.restype = ctypes.c_void_p
    if libc.mmap(None, 4096, 7, 0x22, -1, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")

def trace():
    if libc.ptrace(16, parent, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")

attempt("memory of the service", lambda: os.open(f"/proc/{parent}/mem", os.O_RDONLY))
attempt("environment of the service", lambda: os.open(f"/proc/{parent}/environ", os.O_RDONLY))
attempt("file", lambda: os.open("/etc/passwd", os.O_RDONLY))
attempt("directory", lambda: os.listdir(descriptor))
attempt("socket", lambda: socket.socket())
attempt("fork", lambda: os.fork())
attempt("exec", lambda: os.execv("/bin/true", ["true"]))
attempt("signal", lambda: os.kill(parent, 0))
attempt("user", lambda: os.setuid(0))
attempt("executable memory", executable_memory)
attempt("trace", trace)
os.write(0, json.dumps([lacking, outcomes]).encode())
os._exit(0)
"""


@linux_only
def test_a_worker_may_not_use_the_system() -> None:
    command = [sys.executable, "-I", "-c", ATTEMPTS, str(SANDBOX), seccomp_program().hex()]
    lacking, outcomes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    assert lacking == []
    assert outcomes == {
        "memory of the service": "PermissionError",
        "environment of the service": "PermissionError",
        "file": "PermissionError",
        "directory": "PermissionError",
        "socket": "PermissionError",
        "fork": "PermissionError",
        "exec": "PermissionError",
        "signal": "PermissionError",
        "user": "PermissionError",
        "executable memory": "PermissionError",
        "trace": "PermissionError",
    }


WITHOUT_PRCTL: Final = """
import json, os, sys
import pyseccomp
from identity_common.telemetry.logs import configure_logs
from token_service.claims_function.sandbox.confinement import close_memory_to_others, seccomp_program
sys.path.insert(0, sys.argv[1])
import worker

configure_logs(service="token-service", stream=sys.stderr)
program = seccomp_program()
calls = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
calls.add_rule(pyseccomp.ERRNO(1), "prctl")
calls.load()
close_memory_to_others()
os.dup2(1, 0)
lacking = worker.confine(32 << 20, program)
os.write(0, json.dumps(lacking).encode())
"""


@pytest.mark.heavy
@linux_only
def test_what_the_system_refuses_is_in_the_log() -> None:
    command = [sys.executable, "-c", WITHOUT_PRCTL, str(SANDBOX)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)

    logged = json.loads(finished.stderr)
    assert (logged["level"], logged["event"], logged["error"]) == (
        "error",
        "claims-workers.memory-is-open",
        "Operation not permitted",
    )
    assert json.loads(finished.stdout) == [
        "a worker may outlive the service",
        "other processes of its user may read the memory of a worker",
        "no no_new_privs",
        "no seccomp: the kernel refuses the filter",
    ]


SAME_USER: Final = """
import ctypes, os
from token_service.claims_function.sandbox.confinement import close_memory_to_others

if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable, as a service is that was started as this user

def a_child_reads_the_memory():
    child = os.fork()
    if child == 0:
        try:
            os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

before = a_child_reads_the_memory()
close_memory_to_others()
print(before, a_child_reads_the_memory())
"""


@pytest.mark.heavy
@linux_only
def test_a_process_of_the_same_user_may_not_read_the_memory_of_the_service() -> None:
    answer = subprocess.run([sys.executable, "-c", SAME_USER], check=True, capture_output=True, text=True).stdout

    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    may_at_first = not yama.exists() or yama.read_text().strip() == "0"
    assert answer.split() == [str(may_at_first), "False"]
