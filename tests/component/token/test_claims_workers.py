"""The workers that run operators' scripts: reserving, losing, replacing and stopping them."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Final

import pytest
import uvloop

from tests.support.captured_logs import captured_logs
from tests.support.claims_pool import ECHO, LOOP, data, run
from tests.support.waiting import WAIT_S, eventually_here
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.sandbox import (
    Claims,
    ClaimsWorkers,
    Limits,
    NoWorkerFree,
    Outcome,
    Problem,
    Slot,
    WorkerNotStarted,
)
from token_service.claims_function.sandbox.process import WorkerProcess

pytestmark = pytest.mark.usefixtures("all_workers_are_back")

BUSY: Final = "const getCustomJwtClaims = ({ context: { until, n } }) => { while (Date.now() < until); return { n }; };"


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


@pytest.mark.heavy
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


@pytest.mark.heavy
async def test_a_worker_is_replaced_after_an_error_of_any_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ClaimsWorkers(Limits(), 1) as workers:
        with captured_logs("token-service") as log:
            with monkeypatch.context() as patched:
                patched.setitem(sys.modules, "_quickjs", ModuleType("_quickjs"))  # whose place is not known
                os.kill(workers.pids[0], signal.SIGKILL)
                await eventually_here(lambda: workers._failed_starts >= 2)
            await eventually_here(lambda: workers.free == 1)
        assert await run(workers, ECHO, {"a": 1}) == Claims({"a": 1})

    lines = list(map(json.loads, log.getvalue().splitlines()))
    (failed,) = (line for line in lines if line["event"] == "claims-worker.not-started")
    assert (failed["error"], failed["reason"]) == ("ValueError", "_quickjs.__spec__ is None")
    (started,) = (line for line in lines if line["event"] == "claims-worker.started")
    assert started["count"] >= 2


async def test_free_workers_take_turns(workers: ClaimsWorkers) -> None:
    pids = []
    for _ in range(4):
        async with await workers.reserve(within_s=WAIT_S) as slot:
            pids.append(slot._worker.pid)  # the last one still makes the context of its next call

    assert sorted(pids[:2]) == workers.pids
    assert pids[2:] == pids[:2]


@pytest.mark.heavy
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
    now = 0.0
    on_demand = WorkersOnDemand(workers, count=2, clock=lambda: now)
    with captured_logs("token-service") as log:
        for second in (0.0, 1.0):
            now = second
            with descriptors_left(descriptors), pytest.raises(NoWorkerFree):
                await on_demand.start()
            assert (workers.pids, workers.free) == ([], 0)
        now = 1.9
        with pytest.raises(NoWorkerFree):  # not tried
            await on_demand.start()

        now = 2.0
        await on_demand.start()
    try:
        assert (len(workers.pids), workers.free) == (2, 2)
        assert await on_demand.run(ECHO, data({"a": 1})) == Claims({"a": 1})
    finally:
        await on_demand.stop()
    assert workers.pids == []
    failed, started = (line for line in map(json.loads, log.getvalue().splitlines()) if "workers." in line["event"])
    assert (failed["event"], failed["error"]) == ("claims-workers.failed", "OSError")
    assert (started["event"], started["count"]) == ("claims-workers.started", 2)


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
