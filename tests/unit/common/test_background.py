"""Loops that survive errors, and runs that concurrent callers share."""

import asyncio
import json

import pytest

from identity_common.background import BackgroundLoop, SharedRun
from identity_common.telemetry.logs import get_logger
from tests.support.captured_logs import captured_logs


class InterruptedOnceError(Exception):
    """The next run begins at once."""


async def test_a_loop_survives_every_error_and_logs_what_it_should() -> None:
    outcomes: list[Exception | None] = [OSError(), OSError(), None, InterruptedOnceError(), ArithmeticError()]
    finished = asyncio.Event()

    async def work() -> None:
        if not outcomes:
            finished.set()
            await asyncio.Event().wait()
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    with captured_logs("unit-tests") as log:
        loop = BackgroundLoop(
            work,
            name="unit-test",
            pause_s=0,
            log=get_logger("x").bind(source="management"),
            failed="work.failed",
            interrupted="work.interrupted",
            expected=(OSError,),
            resume_on=(InterruptedOnceError,),
        )
        loop.start()
        await finished.wait()
        await loop.stop()
        lines = [json.loads(line) for line in log.getvalue().splitlines()]

    assert [(line["level"], line["event"], line["error"], line["source"]) for line in lines] == [
        ("warning", "work.interrupted", "OSError", "management"),
        ("error", "work.failed", "ArithmeticError", "management"),
    ]
    assert ["traceback" in line for line in lines] == [False, True]


async def test_callers_share_the_next_run_to_begin() -> None:
    begun, may_end = 0, asyncio.Event()

    async def work() -> None:
        nonlocal begun
        begun += 1
        await may_end.wait()

    runs = SharedRun(work, name="unit-test")
    first = runs.next()
    assert runs.next() is first, "it has not begun yet"
    await asyncio.sleep(0)
    second, third = runs.next(), runs.next()
    assert (second is third, second is first, begun) == (True, False, 1)

    may_end.set()
    await asyncio.gather(first, second)

    assert begun == 2


async def test_a_failing_run_fails_for_its_own_callers_only() -> None:
    outcomes: list[Exception | None] = [LookupError(), None]

    async def work() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    runs = SharedRun(work, name="unit-test")
    first = runs.next()
    await asyncio.sleep(0)
    second = runs.next()

    with pytest.raises(LookupError):
        await first
    await second
