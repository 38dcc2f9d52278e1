"""The walks of ``test_console_in_a_browser`` over thousands of objects: what is asked for is still four steps away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.console import Size, populate
from tests.clients.test_console_in_a_browser import (
    HOSTILE,
    test_the_questions_about_a_person_take_four_steps_with_the_keyboard,
    test_what_a_support_lead_asks_is_answered_with_the_keyboard,
    test_what_happened_takes_four_steps_with_the_keyboard,
)
from tests.support.administrator import Administrator
from tests.support.own_servers import OwnServers
from tests.support.running_stack import RunningStack
from tests.support.world import World

__all__ = (  # collected here too, with the fixtures of this module
    "test_the_questions_about_a_person_take_four_steps_with_the_keyboard",
    "test_what_a_support_lead_asks_is_answered_with_the_keyboard",
    "test_what_happened_takes_four_steps_with_the_keyboard",
)
pytestmark = [pytest.mark.clients, pytest.mark.heavy]

SIZE = Size(users=5_000, organizations=500, members=30, roles=100, permissions=50, entries=20_000, rounds=0)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """A stack of its own, with a data set like that of the benchmark; of what requests create there is less."""
    directory: Path = tmp_path_factory.mktemp("many")
    with OwnServers(directory / "servers") as servers:
        (directory / "stack").mkdir()
        stack = RunningStack(servers.addresses, directory / "stack")
        stack.start()
        populate(stack, SIZE)
        yield stack
        stack.stop()


@pytest.fixture(scope="module")
def world(stack: RunningStack) -> Iterator[World]:
    world = World(stack)
    yield world
    world.close()


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name=HOSTILE)
