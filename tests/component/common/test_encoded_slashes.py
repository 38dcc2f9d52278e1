"""A percent-encoded slash is not a separator, neither at the edge nor in a service (RFC 3986 section 2.2)."""

import secrets

import httpx2 as httpx
import pytest

from tests.support.running_stack import RunningStack
from tests.support.world import World


@pytest.fixture(scope="module")
def bearer(stack: RunningStack) -> dict[str, str]:
    access = stack.credentials.management_api
    form = {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope}
    token = stack.token_request(form, auth=(access.client_id, access.client_secret)).json()["access_token"]
    return {"Authorization": f"Bearer {token}"}


SERVED = [
    ("management", "/api/users/{user}/roles"),
    ("management", "/api/status"),
    ("template", "/api/organizations/{organization}/users"),
    ("template", "/api/organizations/{organization}/users/{user}/scopes"),
    ("template", "/api/users/{user}/organizations"),
    ("token", "/api/users/{user}/consents"),
    ("token", "/api/users/{user}/sessions"),
    ("token", "/oidc/.well-known/openid-configuration"),
    ("token", "/oidc/jwks"),
]


@pytest.mark.parametrize("encoded", ["%2F", "%2f"])
@pytest.mark.parametrize(("service", "template"), SERVED)
async def test_a_path_with_an_encoded_slash_matches_no_route(
    stack: RunningStack, world: World, bearer: dict[str, str], service: str, template: str, encoded: str
) -> None:
    path = template.format(user=world.customer, organization=world.organization)
    apart = [f"{path[:i]}{encoded}{path[i + 1 :]}" for i in range(1, len(path)) if path[i] == "/"]
    assert stack.http.get(path, headers=bearer).is_success
    for each in apart:
        assert stack.http.get(each, headers=bearer).status_code in {404, 405}, each
    transport = httpx.ASGITransport(app=stack.apps[service])
    async with httpx.AsyncClient(transport=transport, base_url=stack.base_url) as alone:
        for each in apart:
            assert (await alone.get(each)).status_code in {401, 404, 405}, each


def test_an_id_with_an_encoded_slash_reaches_no_other_operation(
    stack: RunningStack, world: World, bearer: dict[str, str]
) -> None:
    """``DELETE`` of an unknown user must not remove a role of an existing one."""
    user = world.user(world.keeper_role)
    for path in (
        f"/api/users/{user}%2Froles%2F{world.keeper_role}",
        f"/api/users/{user}/roles%2F{world.keeper_role}",
        f"/api%2Fusers/{user}",
        f"/api/organizations/{world.organization}%2Fusers%2F{user}",
    ):
        assert stack.http.delete(path, headers=bearer).status_code in {404, 405}, path
    assert [role.id for role in world.management.users.roles(user)] == [world.keeper_role]


def test_other_encoded_characters_are_decoded(stack: RunningStack, world: World, bearer: dict[str, str]) -> None:
    spelled = "".join(f"%{ord(character):02X}" for character in world.customer)
    assert stack.http.get(f"/api/users/{spelled}", headers=bearer).json()["id"] == world.customer
    name = f"ä ö%2F{secrets.token_hex(2)}"
    assert stack.http.get(f"/api/users/{name}", headers=bearer).status_code == 404
