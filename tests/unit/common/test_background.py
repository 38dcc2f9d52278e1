"""Loops that survive errors, and runs that concurrent callers share."""

import asyncio
import json
from typing import Any, Final

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from identity_common.background import BackgroundLoop, SharedRun
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from tests.support.captured_logs import captured_logs

_LOGGER: Final = "loops-under-test"


class InterruptedOnceError(Exception):
    """The next run begins at once."""


async def logged_by_loop_with(*outcomes: Exception | None) -> list[dict[str, Any]]:
    """Return what a loop logs whose runs end like this."""
    left = list(outcomes)
    finished = asyncio.Event()

    async def work() -> None:
        if not left:
            finished.set()
            await asyncio.Event().wait()
        outcome = left.pop(0)
        if outcome is not None:
            raise outcome

    with captured_logs("unit-tests") as log:
        loop = BackgroundLoop(
            work,
            name="unit-test",
            pause_s=0,
            log=get_logger(_LOGGER).bind(source="management"),
            failed="work.failed",
            interrupted="work.interrupted",
            expected=(OSError, TemporarilyUnavailable, SQLAlchemyError, asyncpg.PostgresError),
            resume_on=(InterruptedOnceError,),
        )
        loop.start()
        await finished.wait()
        await loop.stop()
        lines = map(json.loads, log.getvalue().splitlines())
        return [line for line in lines if line["logger"] == _LOGGER]  # services of other tests may be running


async def test_a_loop_survives_every_error_and_logs_what_it_should() -> None:
    lines = await logged_by_loop_with(OSError(), OSError(), None, InterruptedOnceError(), ArithmeticError())
    assert [(line["level"], line["event"], line["error"], line["source"]) for line in lines] == [
        ("warning", "work.interrupted", "OSError", "management"),
        ("error", "work.failed", "ArithmeticError", "management"),
    ]
    assert ["traceback" in line for line in lines] == [False, True]


async def test_it_logs_which_store_failed_and_why_without_what_a_driver_says() -> None:
    secret = "password in postgresql://stead:hunter2@db/stead"
    wrapped = DBAPIError("SELECT 'hunter2'", {}, Exception(secret))
    wrapped.__cause__ = asyncpg.ConnectionDoesNotExistError(secret)
    lines = await logged_by_loop_with(
        StoreUnavailable("redis", "ConnectionError"),
        StoreUnavailable("redis", "ConnectionError"),
        StoreUnavailable("redis", "ReadOnlyError"),
        StoreUnavailable("postgresql", "ConnectionRefusedError"),
        TemporarilyUnavailable(why="the directory is being loaded"),
        asyncpg.InvalidPasswordError(secret),
        wrapped,
    )
    seen = [{name: line.get(name) for name in ("store", "error", "reason")} for line in lines]
    assert seen == [
        {"store": "redis", "error": "ConnectionError", "reason": None},
        {"store": "redis", "error": "ReadOnlyError", "reason": None},
        {"store": "postgresql", "error": "ConnectionRefusedError", "reason": None},
        {"store": None, "error": "TemporarilyUnavailable", "reason": "the directory is being loaded"},
        {"store": "postgresql", "error": "InvalidPasswordError", "reason": None},
        {"store": "postgresql", "error": "DBAPIError < ConnectionDoesNotExistError", "reason": None},
    ]
    assert "hunter2" not in json.dumps(lines)


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
