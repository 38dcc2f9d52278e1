"""Items of one tick of the event loop are processed as one batch, each with its own result."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from identity_common.stores.coalescing import Coalescer, SameTurn


class Doubler:
    """Doubles numbers and remembers its batches."""

    def __init__(self) -> None:
        self.batches: list[Sequence[int]] = []

    async def __call__(self, numbers: Sequence[int]) -> Sequence[int]:
        self.batches.append(numbers)
        await asyncio.sleep(0)
        if 13 in numbers:
            raise LookupError
        return [2 * number for number in numbers]


async def test_items_of_one_tick_are_one_batch_in_order() -> None:
    double_all = Doubler()
    coalescer: Coalescer[int, int] = Coalescer(double_all)
    assert await asyncio.gather(*(coalescer.submit(number) for number in range(5))) == [0, 2, 4, 6, 8]
    assert await coalescer.submit(7) == 14
    assert double_all.batches == [[0, 1, 2, 3, 4], [7]]


async def test_a_failure_is_raised_at_all_submitters_and_the_next_batch_is_unaffected() -> None:
    coalescer: Coalescer[int, int] = Coalescer(Doubler())
    answers = await asyncio.gather(*(coalescer.submit(number) for number in (1, 13)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LookupError, LookupError]
    assert await coalescer.submit(1) == 2


async def test_a_cancelled_item_does_not_affect_the_others() -> None:
    coalescer: Coalescer[int, int] = Coalescer(Doubler())
    leaving, staying = (coalescer.submit(number) for number in (1, 2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_an_item_that_is_never_awaited_is_processed_and_may_fail_silently() -> None:
    double_all, complaints = Doubler(), list[object]()
    coalescer: Coalescer[int, int] = Coalescer(double_all)
    gc.collect()  # what other tests have left may complain, too
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        for number in (1, 13):
            coalescer.submit(number)
        await asyncio.sleep(0.01)
        gc.collect()
    finally:
        loop.set_exception_handler(usual)  # all tests share the loop
    assert (double_all.batches, complaints) == ([[1, 13]], [])


async def test_items_wait_while_the_maximum_number_of_calls_is_in_flight() -> None:
    double_all = Doubler()
    coalescer: Coalescer[int, int] = Coalescer(double_all, max_concurrent=1, max_batch=3)
    first = coalescer.submit(0)
    await asyncio.sleep(0)  # the first call is in flight
    assert await asyncio.gather(*(coalescer.submit(number) for number in range(1, 6))) == [2, 4, 6, 8, 10]
    assert await first == 0
    assert double_all.batches == [[0], [1, 2, 3], [4, 5]]
    with pytest.raises(LookupError):
        await coalescer.submit(13)
    assert await coalescer.submit(7) == 14


class TestSameTurn:
    async def test_items_of_one_tick_are_processed_in_order_without_a_break(self) -> None:
        happened: list[str] = []

        def double(number: int) -> int:
            happened.append(f"{number} answered")
            return 2 * number

        coalescer = SameTurn(double)

        async def ask(number: int) -> None:
            happened.append(f"{number} asked")
            answer = await coalescer.submit(number)
            happened.append(f"got {answer}")

        await asyncio.gather(ask(1), ask(2))
        await ask(3)

        assert happened == [
            "1 asked", "2 asked", "1 answered", "2 answered", "got 2", "got 4", "3 asked", "3 answered", "got 6",
        ]  # fmt: skip

    async def test_a_failure_is_raised_at_its_own_submitter_only(self) -> None:
        coalescer = SameTurn(lambda number: 1 // number)

        first, second, third = await asyncio.gather(*map(coalescer.submit, (1, 0, -1)), return_exceptions=True)

        assert (first, third) == (1, -1)
        assert isinstance(second, ZeroDivisionError)

    async def test_a_cancelled_item_is_not_processed(self) -> None:
        answered: list[int] = []
        coalescer = SameTurn(answered.append)
        leaving, staying = (coalescer.submit(number) for number in (1, 2))
        leaving.cancel()
        await staying

        assert answered == [2]
        with pytest.raises(asyncio.CancelledError):
            await leaving
