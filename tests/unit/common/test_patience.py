"""Waits that take too long end, all by one timer."""

import asyncio

import pytest

from identity_common.stores.patience import Patience

SECONDS = 0.02


async def wait(patience: Patience, seconds: float) -> str:
    with patience:
        await asyncio.sleep(seconds)
    return "done"


async def test_what_takes_too_long_is_told_so_and_nobody_else() -> None:
    patience = Patience(SECONDS)
    slow = [asyncio.create_task(wait(patience, 60)) for _ in range(3)]
    for _ in range(8):
        assert await wait(patience, SECONDS / 4) == "done"
    assert {type(ended) for ended in await asyncio.gather(*slow, return_exceptions=True)} == {TimeoutError}


async def test_a_task_goes_on_after_it_and_may_wait_again() -> None:
    patience = Patience(SECONDS)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await wait(patience, 60)
        assert await wait(patience, 0) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_is_cancelled_by_somebody_else_is_cancelled() -> None:
    patience = Patience(SECONDS)
    task = asyncio.create_task(wait(patience, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_is_cancelled_by_somebody_else_as_well_is_cancelled() -> None:
    patience = Patience(60)
    task = asyncio.create_task(wait(patience, 60))
    await asyncio.sleep(0)
    for _ in range(3):
        patience._look()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_stays_what_it_is() -> None:
    patience = Patience(SECONDS)
    with pytest.raises(LookupError), patience:
        raise LookupError
    assert await wait(patience, 0) == "done"


async def test_nobody_looks_while_nobody_waits() -> None:
    patience = Patience(SECONDS)
    await wait(patience, 0)
    await asyncio.sleep(2 * SECONDS)
    assert not patience._is_looking
    with pytest.raises(TimeoutError):
        await wait(patience, 60)


def test_only_a_task_can_wait() -> None:
    with pytest.raises(RuntimeError), Patience(SECONDS):
        pass
