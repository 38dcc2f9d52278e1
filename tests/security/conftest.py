"""The people and applications of attacks on signing in."""

from __future__ import annotations

import pytest

from tests.support.at_a_browser import Person, application
from tests.support.world import Client, World


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


@pytest.fixture(scope="module", params=["SPA", "Native", "Traditional"])
def client(world: World, request: pytest.FixtureRequest) -> Client:
    """An application of every kind that people sign in to."""
    return application(world, request.param)


@pytest.fixture
def victim(world: World) -> Person:
    return Person(world)


@pytest.fixture(scope="module")
def signed_in(world: World, ours: Client) -> Person:
    """A person who is signed in, so that a code would be issued at once."""
    person = Person(world)
    person.code(ours)
    return person


@pytest.fixture
def attacker(world: World) -> Person:
    return Person(world)
