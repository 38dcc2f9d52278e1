"""Each part of each service fails in turn: what was started before is stopped, in reverse, and nothing stays."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from litestar import Litestar

import management_service.app
import template_service.app
import token_service.app
from all_in_one.stack import Stack
from identity_common.lifetime import Lifetime, Part
from identity_common.stores.database import Startup
from provision import ServerAddresses
from tests.support.management_api import unique
from tests.support.waiting import eventually_here

pytestmark = pytest.mark.heavy


class FailedPartError(Exception):
    """A part was made to fail."""


class Watch:
    """Watches what one lifetime starts and stops.

    Attributes:
        running: The parts that run, in the order of their starts.
        stopped_in_reverse: Whether each part that was stopped was the last one of those.
        rounds: How many parts ran each time when the first of them was stopped.
    """

    def __init__(self) -> None:
        self.running: list[Part] = []
        self.stopped_in_reverse = True
        self.rounds: list[int] = []
        self._is_stopping = False

    def started(self, part: Part) -> int:
        self._is_stopping = False
        self.running.append(part)
        return len(self.running)

    def stopped(self, part: Part) -> None:
        if not self._is_stopping:
            self.rounds.append(len(self.running))
        self._is_stopping = True
        self.stopped_in_reverse &= self.running[-1] is part
        self.running.remove(part)


class WatchedPart:
    """A real part that may fail once it has started."""

    def __init__(self, part: Part, watch: Watch, fails: Callable[[int], bool]) -> None:
        self._part = part
        self._watch = watch
        self._fails = fails

    def start(self) -> None:
        number = self._watch.started(self._part)
        self._part.start()
        if self._fails(number):
            raise FailedPartError

    async def stop(self) -> None:
        await self._part.stop()
        self._watch.stopped(self._part)


class Life:
    """One life of a service, from its start to its end.

    Args:
        failing: Number of the part of its lifespan that fails. Of the parts that need the database, the first one
            fails at the first preparation, the second one at the second, and so on.

    Attributes:
        lifespan: The parts of the lifespan.
        preparations: The parts that need the database.
    """

    def __init__(self, failing: int) -> None:
        self.lifespan, self.preparations = Watch(), Watch()
        self._failing = failing
        self._lifetime: Lifetime | None = None

    def watched(self, lifetime: Lifetime, part: Part) -> WatchedPart:
        self._lifetime = self._lifetime or lifetime
        if lifetime is self._lifetime:
            return WatchedPart(part, self.lifespan, lambda number: number == self._failing)
        return WatchedPart(part, self.preparations, lambda number: number == len(self.preparations.rounds) + 1)

    async def live(self, create_app: Callable[[], Litestar], selector: selectors.BaseSelector) -> bool:
        """Return whether the service started; nothing is left of it afterwards."""
        of_the_loop = set(selector.get_map())
        has_started = False
        try:
            async with create_app().lifespan():
                has_started = True
                (startup,) = (part for part in self.lifespan.running if isinstance(part, Startup))
                await eventually_here(startup)
        except* FailedPartError:
            pass
        await eventually_here(
            lambda: asyncio.all_tasks() == {asyncio.current_task()} and selector.get_map().keys() == of_the_loop
        )
        return has_started


def lived(create_app: Callable[[], Litestar], life: Life) -> bool:
    """Run a life in an event loop of its own; return whether the service started."""
    selector = selectors.DefaultSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(life.live(create_app, selector))


@pytest.fixture(scope="module")
def services(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The settings of the three services, for a tenant without anything."""
    directory: Path = tmp_path_factory.mktemp("stack")
    environment = {"TENANT_ID": unique("t")}
    stack = Stack(servers, base_url="http://127.0.0.1:1", directory=directory, environment=environment)
    stack.migrate()
    return stack


@pytest.mark.parametrize("service", ["management", "token", "template"])
def test_a_part_that_fails_to_start_leaves_nothing_behind(
    services: Stack, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_app: Callable[[], Litestar] = {
        "management": lambda: management_service.app.create_app(services.management),
        "token": lambda: token_service.app.create_app(services.token),
        "template": lambda: template_service.app.create_app(services.template),
    }[service]
    start_part, lives = Lifetime.start, [Life(failing=1)]
    monkeypatch.setattr(
        Lifetime, "start", lambda self, *parts: [start_part(self, lives[-1].watched(self, part)) for part in parts]
    )
    with ThreadPoolExecutor(1) as thread:
        while not thread.submit(lived, create_app, lives[-1]).result():
            lives.append(Life(failing=len(lives) + 1))
    watches = [watch for life in lives for watch in (life.lifespan, life.preparations)]
    assert [(watch.running, watch.stopped_in_reverse) for watch in watches] == [([], True)] * len(watches)
    *failed, started = lives
    assert [life.lifespan.rounds for life in failed] == [[number] for number in range(1, len(lives))]
    assert started.lifespan.rounds == [len(failed)]
    *preparations, whole = started.preparations.rounds
    assert preparations == list(range(1, whole + 1))
