"""What was started is stopped, whichever part fails to start or to stop."""

from __future__ import annotations

import asyncio
import json

import pytest

from identity_common.lifetime import Lifetime
from identity_common.stores.database import Startup, create_database_engine
from management_service.app import VERSIONS
from tests.support.captured_logs import captured_logs
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S, eventually_here


class FailedPartError(Exception):
    """A part was made to fail."""


class Loop:
    """A part with a task."""

    def __init__(self, *, fails: bool = False) -> None:
        self.task: asyncio.Task[None] | None = None
        self._fails = fails

    def start(self) -> None:
        self.task = asyncio.create_task(asyncio.sleep(WAIT_S))

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait((self.task,))
        if self._fails:
            raise FailedPartError


async def test_what_a_failed_preparation_started_is_stopped_before_the_next(management: Management) -> None:
    engine = create_database_engine(management.settings.database_url, service="tests", pool_size=1)
    loops: list[Loop] = []

    async def prepare(lifetime: Lifetime) -> None:
        assert all(each.task is None or each.task.done() for each in loops)
        loops.append(Loop())
        lifetime.start(loops[-1])
        if len(loops) == 1:
            raise ArithmeticError

    startup = Startup(engine, versions=VERSIONS, then=prepare)
    startup.start()
    try:
        await eventually_here(startup)
    finally:
        await startup.stop()
        await engine.dispose()
    assert [each.task is not None and each.task.cancelled() for each in loops] == [True, True]


async def test_the_others_are_stopped_when_one_fails_to_stop() -> None:
    parts = [Loop(), Loop(fails=True), Loop()]
    with captured_logs("token-service") as log, pytest.raises(FailedPartError):
        async with Lifetime() as lifetime:
            lifetime.start(*parts)
    assert [each.task is not None and each.task.cancelled() for each in parts] == [True, True, True]
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["event"], line["kind"], line["error"]) == ("lifetime.stop-failed", "Loop.stop", "FailedPartError")
