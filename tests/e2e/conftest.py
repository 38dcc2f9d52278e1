"""The application and the user for the tests of the identity client."""

import pytest

from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import World


@pytest.fixture(scope="module")
def client_id(world: World) -> str:
    return world.management.applications.create(
        name="Web", type="SPA", oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    ).id


@pytest.fixture
def person(world: World) -> Person:
    person = Person(world)
    world.management.users.assign_roles(person.user_id, [world.keeper_role])
    return person
