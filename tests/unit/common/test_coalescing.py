"""Questions of one turn of the event loop are answered together, each with its own answer."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from identity_common.stores.coalescing import Coalescer, SameTurn


class Oracle:
    """Doubles numbers, and remembers what it was asked at once."""

    def __init__(self) -> None:
        self.asked: list[Sequence[int]] = []

    async def __call__(self, questions: Sequence[int]) -> Sequence[int]:
        self.asked.append(questions)
        await asyncio.sleep(0)
        if 13 in questions:
            raise LookupError
        return [2 * question for question in questions]


async def test_what_is_asked_in_one_turn_is_answered_at_once_in_order() -> None:
    oracle = Oracle()
    coalescer: Coalescer[int, int] = Coalescer(oracle)
    assert await asyncio.gather(*(coalescer.submit(number) for number in range(5))) == [0, 2, 4, 6, 8]
    assert await coalescer.submit(7) == 14
    assert oracle.asked == [[0, 1, 2, 3, 4], [7]]


async def test_a_failure_is_everybody_s_and_the_next_turn_starts_afresh() -> None:
    coalescer: Coalescer[int, int] = Coalescer(Oracle())
    answers = await asyncio.gather(*(coalescer.submit(number) for number in (1, 13)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LookupError, LookupError]
    assert await coalescer.submit(1) == 2


async def test_who_goes_away_takes_nobody_along() -> None:
    coalescer: Coalescer[int, int] = Coalescer(Oracle())
    leaving, staying = (coalescer.submit(number) for number in (1, 2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 4
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_question_is_answered_although_nobody_awaits_it_and_may_fail_in_silence() -> None:
    oracle, complaints = Oracle(), list[object]()
    coalescer: Coalescer[int, int] = Coalescer(oracle)
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        for number in (1, 13):
            coalescer.submit(number)
        await asyncio.sleep(0.01)
        gc.collect()
    finally:
        loop.set_exception_handler(usual)  # the loop is that of all tests
    assert (oracle.asked, complaints) == ([[1, 13]], [])


async def test_what_is_asked_while_enough_is_under_way_is_collected() -> None:
    oracle = Oracle()
    coalescer: Coalescer[int, int] = Coalescer(oracle, max_concurrent=1, max_batch=3)
    first = coalescer.submit(0)
    await asyncio.sleep(0)  # it is being answered
    assert await asyncio.gather(*(coalescer.submit(number) for number in range(1, 6))) == [2, 4, 6, 8, 10]
    assert await first == 0
    assert oracle.asked == [[0], [1, 2, 3], [4, 5]]
    with pytest.raises(LookupError):
        await coalescer.submit(13)
    assert await coalescer.submit(7) == 14


class TestSameTurn:
    async def test_what_is_asked_in_one_turn_is_answered_in_order_and_in_one_go(self) -> None:
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

    async def test_a_failure_is_that_of_who_asked(self) -> None:
        coalescer = SameTurn(lambda number: 1 // number)

        first, second, third = await asyncio.gather(*map(coalescer.submit, (1, 0, -1)), return_exceptions=True)

        assert (first, third) == (1, -1)
        assert isinstance(second, ZeroDivisionError)

    async def test_who_goes_away_is_not_worked_for(self) -> None:
        answered: list[int] = []
        coalescer = SameTurn(answered.append)
        leaving, staying = (coalescer.submit(number) for number in (1, 2))
        leaving.cancel()
        await staying

        assert answered == [2]
        with pytest.raises(asyncio.CancelledError):
            await leaving
