"""What a service has started is stopped, whichever of its parts fails to start or to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from litestar import Litestar

import template_service.app
from identity_common.lifetime import Lifetime, Part
from identity_common.stores.database import Startup, create_database_engine
from management_service.app import VERSIONS
from provision import ServerAddresses
from template_service.settings import Settings as TemplateSettings
from tests.component.common.test_stopping import management, token
from tests.support.captured_logs import captured_logs
from tests.support.management_api import Management
from tests.support.running_stack import RunningStack
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


def template(addresses: ServerAddresses) -> Litestar:
    return template_service.app.create_app(
        TemplateSettings(
            base_url="http://127.0.0.1:9",
            environment="development",
            tenant_id="stopping",
            database_url=addresses.template_database_url,
            redis_url=addresses.template_redis_url,
            nats_url=addresses.template_nats_url,
        )
    )


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> list[Part]:
    """Make the n-th part of a service fail as it starts, after it has started; return the parts that were started."""
    started: list[Part] = []
    start = Lifetime.start

    def start_parts(self: Lifetime, *parts: Part) -> None:
        for part in parts:
            start(self, part)
            started.append(part)
            if len(started) == number:
                raise FailedPartError

    monkeypatch.setattr(Lifetime, "start", start_parts)
    return started


@pytest.mark.heavy
@pytest.mark.parametrize("create", [management, token, template])
async def test_no_task_outlives_a_service_that_fails_to_start(
    stack: RunningStack, create: Callable[[ServerAddresses], Litestar], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part fails in turn."""
    before = asyncio.all_tasks()
    for number in range(1, 100):
        with monkeypatch.context() as patched:
            started = failing(patched, number)
            try:
                async with asyncio.timeout(WAIT_S), create(stack.addresses).lifespan():
                    break
            except* FailedPartError:
                assert len(started) >= number  # others start once the database answers
        await eventually_here(lambda: asyncio.all_tasks() <= before)  # a cancelled task may need a moment to end
    assert number > 2


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
