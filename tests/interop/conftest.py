"""What a client written elsewhere is configured with."""

import pytest

from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World


@pytest.fixture(scope="session")
def goodbye() -> str:
    """Where signing out ends."""
    return "https://app.example.com/goodbye"


@pytest.fixture(scope="session")
def application(world: World, goodbye: str) -> Client:
    """A web application with a secret."""
    created = world.management.applications.create(
        name="A web application",
        type="Traditional",
        oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [goodbye]},
        custom_client_metadata={"allowTokenExchange": True},
    )
    return Client(created.id, world.management.applications.create_secret(created.id, "first").value)


@pytest.fixture
def person(world: World) -> Person:
    """Somebody who may read and write things."""
    person = Person(world)
    world.management.users.assign_roles(person.user_id, [world.keeper_role])
    return person
