"""The SDKs of Logto, unmodified, with its URN namespace and resource indicator as settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.conversation import NODE, converse
from tests.support.running_stack import RunningStack
from tests.support.world import World

pytestmark = pytest.mark.clients

GOODBYE = "https://app.example.com/goodbye"


@pytest.fixture(scope="module")
def world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    stack = RunningStack(
        servers,
        tmp_path_factory.mktemp("logto"),
        tenant_id="logto",
        environment={"URN_NAMESPACE": "logto", "MANAGEMENT_API_RESOURCE": "https://default.logto.app/api"},
    )
    stack.start()
    world = World(stack)
    yield world
    world.close()
    stack.stop()


@pytest.fixture
def member(world: World) -> Person:
    """A clerk of the organization who may read and write things."""
    member = Person(world)
    world.management.users.assign_roles(member.user_id, [world.keeper_role])
    world.template.member(world.organization, member.user_id, world.clerk_roles["user"])
    return member


def application(world: World, kind: str) -> str:
    return world.management.applications.create(
        name=f"A {kind} application",
        type=kind,  # type: ignore[arg-type]
        oidc_client_metadata={"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [GOODBYE]},
    ).id


def addresses(world: World) -> dict[str, str]:
    return {
        "BASE_URL": world.stack.base_url,
        "REDIRECT_URI": REDIRECT_URI,
        "GOODBYE": GOODBYE,
        "RESOURCE": world.resource,
        "ORGANIZATION": world.organization,
        "PERMISSION": world.permission("read:invoices"),
    }


def expected(world: World, member: Person) -> dict[str, Any]:
    return {
        "sub": member.user_id,
        "organizations": [world.organization],
        "name": "Ada Lovelace",
        "organization": [world.organization_audience(), world.permission("read:invoices")],
        "resource": [world.resource, "read:things"],
        "renewed": [world.resource, True, True],
        "authenticated": False,
        "goodbye": GOODBYE,
    }


def test_logto_node_signs_in_and_gets_every_token(world: World, npm_packages: Path, member: Person) -> None:
    client_id = application(world, "Traditional")
    secret = world.management.applications.create_secret(client_id, "first").value or ""
    environment = {**addresses(world), "CLIENT_ID": client_id, "CLIENT_SECRET": secret}
    seen = converse([NODE, npm_packages / "logto_node.mjs"], member, **environment)
    assert seen == expected(world, member)


@pytest.mark.slow
def test_logto_api_manages_users_and_organizations(world: World, npm_packages: Path) -> None:
    access = world.stack.credentials.management_api
    seen = converse(
        [NODE, npm_packages / "logto_api.mjs"],
        BASE_URL=world.stack.base_url,
        MACHINE_ID=access.client_id,
        MACHINE_SECRET=access.client_secret,
    )
    assert seen == {
        "name": "Rear Admiral Hopper",
        "added": 201,
        "isMember": [True],
        "subjectToken": [201, ["expiresIn", "subjectToken"], 600],
        "deleted": 204,
        "missing": [404, "entity.not_exists_with_id"],
    }


@pytest.mark.slow
def test_logto_for_python_signs_in_and_gets_every_token(world: World, pypi_python: Path, member: Person) -> None:
    """It sends its secret in the body, which the application has to choose."""
    client_id = application(world, "Traditional")
    secret = world.management.applications.create_secret(client_id, "first").value or ""
    chosen = {"tokenEndpointAuthMethod": "client_secret_post"}
    world.management.applications.update(client_id, custom_client_metadata=chosen)
    environment = {**addresses(world), "CLIENT_ID": client_id, "CLIENT_SECRET": secret}
    seen = converse([pypi_python, Path(__file__).parent / "python" / "logto_client.py"], member, **environment)
    assert seen == expected(world, member)
