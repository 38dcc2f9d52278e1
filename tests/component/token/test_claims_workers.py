"""The workers that run operators' scripts: reserving, losing and replacing them, and what one may do."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest
import uvloop

import token_service.claims_function.sandbox.process
from tests.support.captured_logs import captured_logs
from tests.support.claims_workers import kinds_of_descriptors, of_process
from tests.support.waiting import WAIT_S, eventually_here
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.sandbox import (
    Claims,
    ClaimsWorkers,
    Denied,
    Limits,
    NotChecked,
    NoWorkerFree,
    Outcome,
    Problem,
    Slot,
    WorkerNotStarted,
)
from token_service.claims_function.sandbox.confinement import seccomp_program
from token_service.claims_function.sandbox.outcomes import read_run
from token_service.claims_function.sandbox.process import WorkerProcess

SANDBOX: Final = Path(token_service.claims_function.sandbox.__file__).parent
ECHO: Final = "const getCustomJwtClaims = ({ context }) => context;"
BUSY: Final = "const getCustomJwtClaims = ({ context: { until, n } }) => { while (Date.now() < until); return { n }; };"
LOOP: Final = "const getCustomJwtClaims = () => { for (;;); };"
MAIN_MEMORY: Final = 20 * 1024

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc, prctl and seccomp are Linux's")


@pytest.fixture(scope="module")
async def workers() -> AsyncIterator[ClaimsWorkers]:
    async with ClaimsWorkers(Limits(time_ms=5000), 2) as pool:
        yield pool


@pytest.fixture(autouse=True)
async def all_workers_are_back(workers: ClaimsWorkers) -> AsyncIterator[None]:
    yield
    await eventually_here(lambda: workers.free == 2)


async def run(workers: ClaimsWorkers, script: str, context: Any = None) -> Outcome:
    async with await workers.reserve(within_s=WAIT_S) as slot:
        return await slot.run(script, data(context))


def data(context: Any) -> bytes:
    return msgspec.json.encode({"token": {}, "context": context, "environmentVariables": {}})


async def check(workers: ClaimsWorkers, script: str) -> Problem | None:
    async with await workers.reserve(within_s=WAIT_S) as slot:
        return await slot.check(script)


async def both(workers: ClaimsWorkers) -> tuple[Slot, Slot]:
    return await workers.reserve(within_s=WAIT_S), await workers.reserve(within_s=WAIT_S)


# Reserving


async def test_without_a_free_worker_a_reservation_fails(workers: ClaimsWorkers) -> None:
    one, two = await both(workers)
    async with one, two:
        with pytest.raises(NoWorkerFree):
            await workers.reserve(within_s=0)

    assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})


async def test_reservations_wait_in_order(workers: ClaimsWorkers) -> None:
    order: list[int] = []

    async def reserve(number: int) -> None:
        async with await workers.reserve(within_s=WAIT_S):
            order.append(number)

    one, two = await both(workers)
    async with two:
        async with one:
            tasks = [asyncio.create_task(reserve(number)) for number in range(5)]
            await asyncio.sleep(0)
            assert order == []
        await asyncio.gather(*tasks)

    assert order == [0, 1, 2, 3, 4]


async def test_a_reservation_that_is_cancelled_loses_no_worker(workers: ClaimsWorkers) -> None:
    one, two = await both(workers)
    async with two:
        async with one:
            early, late = (asyncio.create_task(workers.reserve(within_s=WAIT_S)) for _ in range(2))
            await asyncio.sleep(0)
            early.cancel()
        late.cancel()  # in the tick in which it was given the worker
        await asyncio.gather(early, late, return_exceptions=True)

        assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})


async def test_a_slot_is_released_when_its_user_fails(workers: ClaimsWorkers) -> None:
    with pytest.raises(ZeroDivisionError):
        async with await workers.reserve():
            raise ZeroDivisionError

    assert workers.free == 2


async def test_concurrent_calls_get_their_own_results(workers: ClaimsWorkers) -> None:
    outcomes = await asyncio.gather(*(run(workers, ECHO, {"n": n, "text": f"\u20ac {n}"}) for n in range(200)))

    assert outcomes == [Claims({"n": n, "text": f"\u20ac {n}"}) for n in range(200)]


# Losing workers


async def test_a_call_whose_worker_is_killed_is_repeated_with_another(workers: ClaimsWorkers) -> None:
    before = workers.pids
    until = time.time() * 1000 + 500
    calls = [asyncio.create_task(run(workers, BUSY, {"until": until, "n": n})) for n in range(2)]
    await asyncio.sleep(0.05)
    os.kill(before[0], signal.SIGKILL)

    assert await asyncio.gather(*calls) == [Claims({"n": 0}), Claims({"n": 1})]
    assert before[0] not in workers.pids


async def test_a_call_that_loses_two_workers_reports_it(workers: ClaimsWorkers) -> None:
    async with await workers.reserve(within_s=WAIT_S) as slot, await workers.reserve(within_s=WAIT_S):
        call = asyncio.create_task(slot.run(LOOP, data({})))
        first = slot._worker.pid
        await asyncio.sleep(0.05)
        os.kill(first, signal.SIGKILL)
        await eventually_here(lambda: slot._worker.pid != first)
        os.kill(slot._worker.pid, signal.SIGKILL)

        assert await call == Problem("worker-died", "the worker process ended")
        assert await slot.run(ECHO, data({})) == Problem("worker-died", "the worker process ended")
    assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})


async def test_a_call_that_is_cancelled_costs_its_worker(workers: ClaimsWorkers) -> None:
    before = workers.pids
    calls = [asyncio.create_task(run(workers, LOOP)) for _ in range(2)]
    await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await eventually_here(lambda: workers.free == 2)
    assert not set(before) & set(workers.pids)  # they still worked on the calls


async def test_all_workers_killed_at_once_are_replaced(workers: ClaimsWorkers) -> None:
    before = workers.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    await eventually_here(lambda: workers.free == 2 and not set(before) & set(workers.pids))

    outcomes = await asyncio.gather(*(run(workers, ECHO, {"n": n}) for n in range(10)))
    assert outcomes == [Claims({"n": n}) for n in range(10)]


async def test_a_slot_whose_worker_died_before_the_call_uses_another(workers: ClaimsWorkers) -> None:
    async with await workers.reserve(within_s=WAIT_S) as slot:
        os.kill(slot._worker.pid, signal.SIGKILL)
        assert await slot.run(ECHO, data({"a": 1})) == Claims({"a": 1})
        os.kill(slot._worker.pid, signal.SIGKILL)
        assert await slot.check(ECHO) is None


def test_a_call_to_a_worker_that_is_about_to_end_is_repeated() -> None:
    """With the event loop of the service: writing to a transport that is closed is an exception there."""

    async def called() -> Outcome:
        async with ClaimsWorkers(Limits(), 1) as workers, await workers.reserve(within_s=WAIT_S) as slot:
            slot._worker._transport.abort()
            await asyncio.sleep(0)  # closed, while the process still ends
            return await slot.run(ECHO, data({"a": 1}))

    assert uvloop.run(called()) == Claims({"a": 1})


async def test_a_call_that_finds_no_other_worker_fails() -> None:
    async with ClaimsWorkers(Limits(), 1) as workers, await workers.reserve(within_s=0) as slot:
        os.kill(slot._worker.pid, signal.SIGKILL)
        with pytest.raises(NoWorkerFree):
            await slot.run(ECHO, data({}))


async def test_a_worker_that_dies_while_it_is_free_leaves_nothing_in_the_service() -> None:
    async with ClaimsWorkers(Limits(), 2) as workers:
        before = known_processes()
        for _ in range(3):
            pids = workers.pids
            os.kill(pids[0], signal.SIGKILL)
            await eventually_here(lambda pids=pids: workers.free == 2 and workers.pids != pids)  # type: ignore[misc]

        assert known_processes() == before


def known_processes() -> int:
    gc.collect()
    return sum(isinstance(each, WorkerProcess) for each in gc.get_objects())


@contextmanager
def no_further_thread() -> Iterator[None]:
    """Let this process start no thread, as where a container may have no more of them."""
    size = threading.stack_size(1 << 47)  # bytes: the whole address space
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=int).start()
        yield
    finally:
        threading.stack_size(size)


def test_workers_are_replaced_while_no_thread_can_be_started() -> None:
    async def all_die() -> Outcome:
        async with ClaimsWorkers(Limits(time_ms=5000), 4) as workers:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # which has no idle thread
            with no_further_thread():
                before = workers.pids
                calls = [asyncio.create_task(run(workers, LOOP)) for _ in range(4)]
                await asyncio.sleep(0.05)
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
                await eventually_here(lambda: not set(before) & set(workers.pids) and len(workers.pids) == 4)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
                await eventually_here(lambda: workers.free == 4)
                return await run(workers, ECHO, {"a": 1})

    assert asyncio.run(all_die()) == Claims({"a": 1})


async def test_a_worker_is_replaced_after_an_error_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ClaimsWorkers(Limits(), 1) as workers:
        with captured_logs("token-service") as log, monkeypatch.context() as patched:
            patched.setitem(sys.modules, "_quickjs", ModuleType("_quickjs"))  # whose place is not known
            os.kill(workers.pids[0], signal.SIGKILL)
            await eventually_here(lambda: "claims-worker.not-started" in log.getvalue())
        failed = json.loads(log.getvalue().splitlines()[-1])
        assert (failed["error"], failed["reason"]) == ("ValueError", "_quickjs.__spec__ is None")

        await eventually_here(lambda: workers.free == 1)
        assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})


async def test_free_workers_take_turns(workers: ClaimsWorkers) -> None:
    pids = []
    for _ in range(4):
        async with await workers.reserve(within_s=WAIT_S) as slot:
            pids.append(slot._worker.pid)  # the last one still makes the context of its next call

    assert sorted(pids[:2]) == workers.pids
    assert pids[2:] == pids[:2]


async def test_a_stopped_worker_is_ended_too() -> None:
    async with ClaimsWorkers(Limits(time_ms=50), 1) as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)

        assert await run(workers, ECHO, {}) == Problem("time", "it ran longer than 50 ms")
        await eventually_here(lambda: workers.free == 1)
        assert workers.pids != [pid]


async def test_leaving_the_pool_ends_its_processes() -> None:
    async with ClaimsWorkers(Limits(), 2) as workers:
        pids = workers.pids
        os.kill(pids[0], signal.SIGKILL)  # its replacement is ended as well
        slot = await workers.reserve(within_s=WAIT_S)
        workers.give_back(slot._worker, spoiled=True)  # as it leaves, with no tick in between
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert workers.pids == []


async def test_a_pool_whose_engine_does_not_start_says_why() -> None:
    with pytest.raises(WorkerNotStarted, match=r"the worker of the claims function failed: OverflowError"):
        async with ClaimsWorkers(Limits(memory_mib=2**60), 1):
            pass


# A pool that does not start


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open no more than so many further descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.dup(0) for _ in range(count + 1)]  # each the lowest number that is not in use
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("descriptors", [0, 5])  # for none of the workers, or for the first alone
async def test_a_pool_that_did_not_start_works_after_the_next_start(descriptors: int) -> None:
    workers = ClaimsWorkers(Limits(time_ms=5000), 2)
    on_demand = WorkersOnDemand(workers, count=2)
    with descriptors_left(descriptors), pytest.raises(NoWorkerFree):
        await on_demand.start()
    assert (workers.pids, workers.free) == ([], 0)

    await on_demand.start()
    try:
        assert (len(workers.pids), workers.free) == (2, 2)
        assert await on_demand.run(ECHO, data({"a": 1})) == Claims({"a": 1})
    finally:
        await on_demand.stop()
    assert workers.pids == []


async def test_a_pool_that_is_idle_and_not_needed_is_stopped_and_starts_again() -> None:
    workers = ClaimsWorkers(Limits(time_ms=5000), 2)
    needed = True
    on_demand = WorkersOnDemand(workers, count=2, is_needed=lambda: needed)
    try:
        async with await on_demand.reserve(within_s=WAIT_S):
            pass
        before = workers.pids
        await on_demand.stop_if_idle()
        assert workers.pids == before

        needed = False
        async with await on_demand.reserve(within_s=WAIT_S) as slot:
            await on_demand.stop_if_idle()
            assert await slot.run(ECHO, data({"a": 1})) == Claims({"a": 1})
        await on_demand.hold_place(within_s=WAIT_S)
        await on_demand.stop_if_idle()
        assert workers.pids == before
        on_demand.release_place()
        await on_demand.stop_if_idle()
        assert workers.pids == []

        await on_demand.hold_place(within_s=WAIT_S)
        assert await on_demand.run(ECHO, data({"a": 2})) == Claims({"a": 2})
        assert (len(workers.pids), workers.free) == (2, 2)
    finally:
        await on_demand.stop()


async def test_an_idle_pool_is_stopped_after_a_while() -> None:
    workers = ClaimsWorkers(Limits(time_ms=5000), 1)
    on_demand = WorkersOnDemand(workers, count=1, idle_s=0.01)
    try:
        for _ in range(2):
            await on_demand.start()
            await eventually_here(lambda: workers.pids == [])
    finally:
        await on_demand.stop()


def test_a_pool_that_could_start_no_thread_works_after_the_next_start() -> None:
    async def two_starts() -> Outcome:
        workers = ClaimsWorkers(Limits(time_ms=5000), 1)
        with no_further_thread(), pytest.raises(WorkerNotStarted, match="can't start new thread"):
            await workers.__aenter__()
        async with workers:
            return await run(workers, ECHO, {"a": 1})

    assert asyncio.run(two_starts()) == Claims({"a": 1})


# Limits


async def test_every_limit_is_a_setting() -> None:
    limits = Limits(time_ms=5000, memory_mib=4, result_bytes=40, microtasks=20, nesting=2)
    awaits = (
        "const getCustomJwtClaims = async ({ context }) => { for (let i = 0; i < context; i++) await i; return {}; };"
    )
    async with ClaimsWorkers(limits, 1) as workers:
        assert await run(workers, ECHO, {"a": [1]}) == Claims({"a": [1]})
        assert await run(workers, ECHO, {"a": [[]]}) == Problem("result", "it nests deeper than 2 levels")
        assert await run(workers, ECHO, {"a": "x" * 32}) == Claims({"a": "x" * 32})
        assert await run(workers, ECHO, {"a": "x" * 33}) == Problem("result", "it is longer than 40 bytes")
        assert await run(workers, awaits, 10) == Claims({})
        assert await run(workers, awaits, 30) == Problem("microtasks", "more than 20 microtasks")
        outcome = await run(workers, "const getCustomJwtClaims = () => { new Uint8Array(4 << 20); };")
        assert isinstance(outcome, Problem)
        assert outcome.reason == "memory"


# Checks and positions

CHECKED: Final[dict[str, tuple[str, Problem | None]]] = {
    "a constant": ("const getCustomJwtClaims = async () => ({});", None),
    "a declaration": ("'use strict';\nasync function getCustomJwtClaims() {}", None),
    "a variable": ("var getCustomJwtClaims = () => ({})", None),
    "not run": ("for (;;);\nlet getCustomJwtClaims = () => ({}); // a comment", None),
    "a syntax error": (
        "const getCustomJwtClaims = () => {\n  return };\n  let = ;",
        Problem("syntax", "SyntaxError: unexpected token in expression: ';'", 3, 9),
    ),
    "a comment without an end": (
        "const getCustomJwtClaims = () => ({});\n/*",
        Problem("syntax", "SyntaxError: unexpected end of comment", 2, 1),
    ),
    "strict code": (
        "'use strict';\nfunction getCustomJwtClaims() { with (1) {} }",
        Problem("syntax", "SyntaxError: invalid keyword: with", 2, 33),
    ),
    "declared twice": (
        "let getCustomJwtClaims;\nlet getCustomJwtClaims;",
        Problem("syntax", "SyntaxError: invalid redefinition of lexical identifier", 2, 23),
    ),
    "a NUL character": (
        "const getCustomJwtClaims = () => ({});\n\0",
        Problem("syntax", "the script contains a NUL character", 2),
    ),
    "no function": (
        "const getCustomClaims = () => ({});",
        Problem("no-function", "the script declares no function getCustomJwtClaims"),
    ),
    "declared within another function": (
        "(() => { const getCustomJwtClaims = () => ({}); })();",
        Problem("no-function", "the script declares no function getCustomJwtClaims"),
    ),
    "empty": ("", Problem("no-function", "the script declares no function getCustomJwtClaims")),
    "a bracket that is not closed": (
        "const getCustomJwtClaims = () => {\n  return {};",
        Problem("syntax", "the script ends in the middle of a statement", 2, 13),
    ),
    "a bracket that is not closed, and a comment": (
        "const getCustomJwtClaims = () => {\n  return {};\r\n// done",
        Problem("syntax", "the script ends in the middle of a statement", 3, 8),
    ),
    "a condition without a statement": (
        "const getCustomJwtClaims = () => ({});\nif (globalThis.a)",
        Problem("syntax", "the script ends in the middle of a statement", 2, 18),
    ),
    "a label without a statement": (
        "const getCustomJwtClaims = () => ({});\nlabel:",
        Problem("syntax", "the script ends in the middle of a statement", 2, 7),
    ),
    "a last statement without a semicolon": ("var a = 1, getCustomJwtClaims = () => ({})\na", None),
    "closing brackets": (
        "}\nconst getCustomJwtClaims = () => ({});\n{",
        Problem("syntax", "SyntaxError: unexpected token in expression: '}'", 1, 1),
    ),
}


@pytest.mark.parametrize(("script", "problem"), CHECKED.values(), ids=CHECKED)
async def test_a_check_parses_and_does_not_run(workers: ClaimsWorkers, script: str, problem: Problem | None) -> None:
    assert await check(workers, script) == problem


async def test_a_check_that_exceeds_a_bound_names_it() -> None:
    many_functions = f"{ECHO}\n" + "(() => { let a = [1, 2, 3]; })();\n" * 8_000
    # The engine reads what is in parentheses once more for each of them, to find out whether it is an arrow function.
    many_parentheses = f"{ECHO}\n{'(' * 200}{'+1' * 30_000}{')' * 200};"
    async with ClaimsWorkers(Limits(time_ms=20, memory_mib=1), 1) as workers:
        assert await check(workers, many_functions) == Problem("memory", "it takes more than 1 MiB to parse")
    async with ClaimsWorkers(Limits(time_ms=20), 1) as workers:
        assert await check(workers, many_parentheses) == Problem("time", "it takes longer than 20 ms to parse")
        assert await check(workers, ECHO) is None


async def test_a_check_that_does_not_end_says_nothing_about_the_script() -> None:
    async with ClaimsWorkers(Limits(time_ms=50), 1) as workers:
        async with await workers.reserve(within_s=WAIT_S) as slot:
            os.kill(slot._worker.pid, signal.SIGSTOP)
            with pytest.raises(NotChecked, match=r"^time$"):
                await slot.check(ECHO)
        assert await check(workers, ECHO) is None


async def test_a_problem_has_its_position_in_the_script(workers: ClaimsWorkers) -> None:
    thrown = "const getCustomJwtClaims = async () => {\n  await null;\n  throw new TypeError('no');\n};"
    written = "const getCustomJwtClaims = () => ({\n  get a() { return null.b; },\n});"

    assert await run(workers, thrown) == Problem("exception", "TypeError: no", 3, 13)
    assert await run(workers, written) == Problem("result", "TypeError: cannot read property 'b' of null", 2, 1)
    assert await run(workers, "\n  nothing();") == Problem("exception", "ReferenceError: nothing is not defined", 2, 3)


# A denial that the engine has to end: in a process without the kernel's timer, so that the engine's is first.

DENIES_AND_LOOPS: Final = """
const getCustomJwtClaims = ({ api }) => {
  try { api.denyAccess('no'); } catch { for (;;); }
};
"""
ANSWERED: Final = """
import json, sys
sys.path.insert(0, sys.argv[1])
import worker

start, script, data = json.loads(sys.argv[2])
print(json.dumps(worker.Worker(start)._answer(b"R", script.encode(), data.encode())))
"""


def test_a_denial_stands_although_the_function_then_runs_out_of_time() -> None:
    engine = importlib.util.find_spec("_quickjs")
    assert engine is not None
    assert engine.origin is not None
    start = {
        "engine_directory": str(Path(engine.origin).parent),
        "harness": (SANDBOX / "harness.js").read_text(),
        "describe": (SANDBOX / "describe.js").read_text(),
        "wall_ms": 50,
        "memory_bytes": 32 << 20,
        "result_bytes": 1024,
        "microtasks": 10,
    }
    sent = json.dumps([start, DENIES_AND_LOOPS, data({}).decode()])
    answer = subprocess.run(
        [sys.executable, "-I", "-c", ANSWERED, str(SANDBOX), sent], check=True, capture_output=True
    ).stdout

    assert json.loads(answer) == ["E", '"no"']
    assert read_run(b'E"no"', Limits()) == Denied("no", out_of_time=True)


# What a worker is and may do


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
    assert [json.loads(line)["event"] for line in log.getvalue().splitlines()] == ["claims-worker.without-seccomp"]


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


@linux_only
def test_a_process_of_the_same_user_may_not_read_the_memory_of_the_service() -> None:
    answer = subprocess.run([sys.executable, "-c", SAME_USER], check=True, capture_output=True, text=True).stdout

    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    may_at_first = not yama.exists() or yama.read_text().strip() == "0"
    assert answer.split() == [str(may_at_first), "False"]
