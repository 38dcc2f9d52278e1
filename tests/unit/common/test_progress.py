"""A monotonic counter that tasks can await."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.progress import Progress, TooManyWaitersError

LONG_S = 30.0


async def started(*tasks: asyncio.Task[bool]) -> None:
    """Return when every task waits."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


async def test_a_value_that_is_already_reached_is_not_waited_for() -> None:
    progress = Progress(max_waiters=0)
    progress.advance(5)

    assert [await progress.reach(value, timeout_s=0) for value in (-1, 0, 5)] == [True, True, True]


async def test_it_never_goes_back() -> None:
    progress = Progress()
    for value in (3, 1, 2, -1):
        progress.advance(value)

    assert progress.value == 3


async def test_waiters_are_woken_in_the_order_of_their_values_and_then_of_their_arrival() -> None:
    progress = Progress()
    woken: list[str] = []

    async def wait(name: str, value: int) -> bool:
        reached = await progress.reach(value, timeout_s=LONG_S)
        woken.append(name)
        return reached

    tasks = [asyncio.create_task(wait(f"{value}{letter}", value)) for letter in "abc" for value in (9, 4, 7)]
    await started(*tasks)
    progress.advance(3)
    await started(*tasks)
    progress.advance(7)
    await asyncio.gather(
        *(task for task in tasks if task is not tasks[0] and task is not tasks[3] and task is not tasks[6])
    )
    assert woken == ["4a", "4b", "4c", "7a", "7b", "7c"]
    progress.advance(100)
    assert await asyncio.gather(*tasks) == [True] * 9
    assert woken[6:] == ["9a", "9b", "9c"]


async def test_a_waiter_that_times_out_returns_false_and_frees_its_slot() -> None:
    progress = Progress(max_waiters=1)

    assert await progress.reach(1, timeout_s=0.001) is False
    assert await progress.reach(1, timeout_s=0) is False
    waiting = asyncio.create_task(progress.reach(2, timeout_s=LONG_S))
    await started(waiting)
    progress.advance(2)
    assert await waiting is True


async def test_the_number_of_waiters_is_bounded() -> None:
    """One waiter more than the bound is refused at once, and the others go on waiting."""
    progress = Progress(max_waiters=256)
    tasks = [asyncio.create_task(progress.reach(1, timeout_s=LONG_S)) for _ in range(256)]
    await started(*tasks)

    with pytest.raises(TooManyWaitersError):
        await progress.reach(1, timeout_s=LONG_S)
    assert await progress.reach(-1, timeout_s=0) is True
    progress.advance(1)
    assert await asyncio.gather(*tasks) == [True] * 256


async def test_a_cancelled_waiter_frees_its_slot() -> None:
    """A caller that disconnects must not occupy a slot for ever."""
    progress = Progress(max_waiters=1)
    for _ in range(3):
        waiting = asyncio.create_task(progress.reach(10, timeout_s=LONG_S))
        await started(waiting)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting

    last = asyncio.create_task(progress.reach(10, timeout_s=LONG_S))
    await started(last)
    progress.advance(10)
    assert await last is True


async def test_a_waiter_cancelled_in_the_tick_in_which_the_value_arrives_affects_no_other() -> None:
    progress = Progress(max_waiters=3)
    tasks = [asyncio.create_task(progress.reach(1, timeout_s=LONG_S)) for _ in range(3)]
    await started(*tasks)
    progress.advance(1)
    tasks[1].cancel()

    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [results[0], results[2]] == [True, True]
    assert await progress.reach(1, timeout_s=0) is True


@given(
    st.lists(st.integers(min_value=0, max_value=20), min_size=1, max_size=12),
    st.lists(st.integers(min_value=-1, max_value=20), max_size=12),
)
def test_exactly_the_waiters_whose_value_was_reached_are_woken(wanted: list[int], steps: list[int]) -> None:
    async def run() -> list[bool]:
        progress = Progress()
        tasks = [asyncio.create_task(progress.reach(value, timeout_s=LONG_S)) for value in wanted]
        await asyncio.sleep(0)
        for step in steps:
            progress.advance(step)
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        done = [task.done() for task in tasks]
        progress.advance(20)
        assert await asyncio.gather(*tasks) == [True] * len(tasks)
        return done

    reached = max(steps, default=-1)
    assert asyncio.run(run()) == [value <= reached for value in wanted]
