"""The last user who can sign in and holds ``all`` of the Management API by a role stays: on every route, in races."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.support.lengths import length
from tests.support.management_api import Management, at_once, refusal, unique

LAST = (422, "user.last_administrator")
PASSWORD = "a good password"
ROUNDS = length(short=2, long=50)


class Tenant(NamedTuple):
    """A tenant whose only administrator is a user with one role."""

    management: Management
    role: str
    scope: str
    user: str

    async def another(self, **members: Any) -> str:
        """Create a user without roles and return its id."""
        return str((await self.management.created("users", **members))["id"])

    async def person(self) -> str:
        """Create a user without roles, who can sign in, and return its id."""
        return await self.another(username=unique("ada"), password=PASSWORD)

    async def administrator(self, **members: Any) -> str:
        """Create another administrator, who can sign in unless members are given, and return its id."""
        user = await (self.another(**members) if members else self.person())
        await self.management.client.post(f"/api/roles/{self.role}/users", json={"userIds": [user]})
        return user


async def scope_of(management: Management, name: str) -> str:
    resources = (await management.client.get("/api/resources")).json()
    resource = next(each for each in resources if each["indicator"] == management.settings.management_api_resource)
    scopes = (await management.client.get(f"/api/resources/{resource['id']}/scopes")).json()
    return str(next(scope["id"] for scope in scopes if scope["name"] == name))


async def role_granting(management: Management, *scope_ids: str, **members: Any) -> str:
    created = await management.created(
        "roles", name=unique("role"), description="", type="User", scopeIds=scope_ids, **members
    )
    return str(created["id"])


@pytest_asyncio.fixture
async def tenant(own: Management) -> AsyncIterator[Tenant]:
    scope = await scope_of(own, "all")
    user = await own.created("users", username=unique("grace"), password=PASSWORD)
    tenant = Tenant(own, await role_granting(own, scope), scope, user["id"])
    await own.client.post(f"/api/users/{tenant.user}/roles", json={"roleIds": [tenant.role]})
    yield tenant
    await own.database.execute("DELETE FROM user_roles WHERE tenant_id = $1", own.tenant_id)


ENDINGS = {
    "suspended": ("PATCH", "users/{user}/is-suspended", {"isSuspended": True}),
    "deleted": ("DELETE", "users/{user}", None),
    "identifiers cleared": ("PATCH", "users/{user}", {"username": None}),
    "role removed from the user": ("DELETE", "users/{user}/roles/{role}", None),
    "roles of the user replaced": ("PUT", "users/{user}/roles", {"roleIds": []}),
    "user removed from the role": ("DELETE", "roles/{role}/users/{user}", None),
    "users of the role replaced": ("PUT", "roles/{role}/users", {"userIds": []}),
    "role deleted": ("DELETE", "roles/{role}", None),
    "scope removed from the role": ("DELETE", "roles/{role}/scopes/{scope}", None),
    "scopes of the role replaced": ("PUT", "roles/{role}/scopes", {"scopeIds": []}),
}
"""Every request after which a user is no administrator any more: method, path and body."""


@pytest.fixture(params=ENDINGS)
def ending(request: pytest.FixtureRequest) -> tuple[str, str, Any]:
    return ENDINGS[request.param]


async def end(tenant: Tenant, ending: tuple[str, str, Any], **changed: str) -> Any:
    method, path, body = ending
    address = path.format(**{**tenant._asdict(), **changed})
    return await tenant.management.client.request(method, f"/api/{address}", json=body)


async def test_the_last_administrator_is_refused_and_nothing_changes(
    tenant: Tenant, ending: tuple[str, str, Any]
) -> None:
    client = tenant.management.client
    paths = (f"/api/users/{tenant.user}", f"/api/users/{tenant.user}/roles", f"/api/roles/{tenant.role}/scopes")
    before = [(await client.get(path)).json() for path in paths]
    assert refusal(await end(tenant, ending)) == LAST
    assert [(await client.get(path)).json() for path in paths] == before


async def test_beside_another_administrator_with_another_role_it_is_done(
    tenant: Tenant, ending: tuple[str, str, Any]
) -> None:
    other, role = await tenant.person(), await role_granting(tenant.management, tenant.scope)
    await tenant.management.client.post(f"/api/users/{other}/roles", json={"roleIds": [role]})
    assert (await end(tenant, ending)).is_success


async def test_without_any_administrator_everything_is_done(tenant: Tenant, ending: tuple[str, str, Any]) -> None:
    await tenant.management.database.execute("UPDATE users SET is_suspended = true WHERE id = $1", tenant.user)
    assert (await end(tenant, ending)).is_success


async def test_a_suspended_administrator_and_one_who_reads_do_not_count(
    tenant: Tenant, ending: tuple[str, str, Any]
) -> None:
    client = tenant.management.client
    suspended = await tenant.administrator()
    await client.patch(f"/api/users/{suspended}/is-suspended", json={"isSuspended": True})
    reading = await role_granting(tenant.management, await scope_of(tenant.management, "read"))
    await client.post(f"/api/users/{await tenant.person()}/roles", json={"roleIds": [reading]})
    assert refusal(await end(tenant, ending)) == LAST


@pytest.mark.parametrize(
    "members",
    [{"name": "Ada"}, {"username": "ada"}, {"password": PASSWORD}],
    ids=["without both", "without a password", "without an identifier"],
)
async def test_an_administrator_who_cannot_sign_in_does_not_count(
    tenant: Tenant, ending: tuple[str, str, Any], members: dict[str, str]
) -> None:
    for _ in range(2):
        await tenant.administrator(**{name: unique(text) for name, text in members.items()})
    assert refusal(await end(tenant, ending)) == LAST


@pytest.mark.parametrize(("factor", "counts"), [("passkey", True), ("authenticator", False)])
async def test_an_administrator_without_a_password_counts_with_a_passkey(
    tenant: Tenant,
    factor: str,
    counts: bool,
) -> None:
    user = await tenant.administrator(name="Ada")
    await tenant.management.database.execute("UPDATE users SET second_factors = $2 WHERE id = $1", user, [factor])
    answer = await end(tenant, ENDINGS["suspended"])
    assert answer.is_success if counts else refusal(answer) == LAST


@pytest.mark.parametrize("identifier", [{"primaryEmail": "ada@example.com"}, {"primaryPhone": "+4915112345678"}])
async def test_an_administrator_keeps_one_identifier_of_any_kind(tenant: Tenant, identifier: dict[str, str]) -> None:
    client, path = tenant.management.client, f"/api/users/{tenant.user}"
    assert (await client.patch(path, json={"username": None, **identifier})).status_code == 200
    assert refusal(await client.patch(path, json=dict.fromkeys(identifier))) == LAST
    assert (await client.patch(path, json={"username": unique("ada"), **dict.fromkeys(identifier)})).is_success


async def test_an_invited_administrator_may_be_ended_and_counts_once_accepted(
    tenant: Tenant, ending: tuple[str, str, Any]
) -> None:
    client, database = tenant.management.client, tenant.management.database
    await database.execute("UPDATE users SET password_hash = NULL WHERE id = $1", tenant.user)
    invited = (await client.post(f"/api/users/{tenant.user}/invitation", json={})).json()["invitation"]
    assert (await client.patch(f"/api/users/{tenant.user}", json={"name": "Ada"})).status_code == 200
    accepted = {"invitation": invited, "password": PASSWORD}
    assert (await client.post("/api/invitations/accept", json=accepted)).is_success
    assert refusal(await end(tenant, ending)) == LAST
    await database.execute("UPDATE users SET password_hash = NULL WHERE id = $1", tenant.user)
    assert (await end(tenant, ending)).is_success


async def test_an_application_with_the_scope_does_not_count_and_is_refused_nothing(tenant: Tenant) -> None:
    client, machine = tenant.management.client, await tenant.management.machine()
    role = await tenant.management.created(
        "roles", name=unique("role"), description="", type="MachineToMachine", scopeIds=[tenant.scope]
    )
    await client.post(f"/api/applications/{machine}/roles", json={"roleIds": [role["id"]]})
    assert refusal(await client.delete(f"/api/users/{tenant.user}")) == LAST
    assert (await client.delete(f"/api/applications/{machine}/roles/{role['id']}")).status_code == 204
    assert (await client.delete(f"/api/roles/{role['id']}")).status_code == 204


async def test_a_scope_named_all_of_another_resource_does_not_count(tenant: Tenant) -> None:
    resource = await tenant.management.created(
        "resources", name="Shop", indicator=f"https://{unique('shop')}.example.com"
    )
    scope = await tenant.management.created(f"resources/{resource['id']}/scopes", name="all")
    role = await role_granting(tenant.management, scope["id"])
    client = tenant.management.client
    await client.post(f"/api/users/{await tenant.person()}/roles", json={"roleIds": [role]})
    assert refusal(await client.delete(f"/api/users/{tenant.user}")) == LAST


async def test_a_user_with_a_default_role_that_grants_it_counts(tenant: Tenant) -> None:
    client = tenant.management.client
    role = await role_granting(tenant.management, tenant.scope, isDefault=True)
    other = await tenant.person()
    assert (await client.delete(f"/api/users/{tenant.user}")).status_code == 204
    assert refusal(await client.delete(f"/api/users/{other}")) == LAST
    await client.patch(f"/api/roles/{role}", json={"isDefault": False})


async def test_others_are_changed_while_there_is_one_administrator(tenant: Tenant) -> None:
    client, other = tenant.management.client, await tenant.administrator()
    assert (await client.put(f"/api/users/{other}/roles", json={"roleIds": []})).status_code == 204
    assert (await client.patch(f"/api/users/{other}/is-suspended", json={"isSuspended": True})).status_code == 200
    assert (await client.delete(f"/api/users/{other}")).status_code == 204
    assert (await client.patch(f"/api/users/{tenant.user}/is-suspended", json={"isSuspended": False})).is_success
    assert (await client.patch(f"/api/users/{tenant.user}/password", json={"password": PASSWORD})).is_success


async def test_the_role_may_be_replaced_by_another_that_grants_it(tenant: Tenant) -> None:
    role = await role_granting(tenant.management, tenant.scope)
    path = f"/api/users/{tenant.user}/roles"
    assert (await tenant.management.client.put(path, json={"roleIds": [role]})).status_code == 204


async def test_the_client_of_bootstrap_makes_an_administrator_where_none_is_left(tenant: Tenant) -> None:
    client = tenant.management.client
    await tenant.management.database.execute("UPDATE users SET is_suspended = true WHERE id = $1", tenant.user)
    lifted = await client.patch(f"/api/users/{tenant.user}/is-suspended", json={"isSuspended": False})
    assert lifted.status_code == 200
    assert refusal(await client.delete(f"/api/users/{tenant.user}")) == LAST
    await tenant.administrator()
    assert (await client.delete(f"/api/users/{tenant.user}")).status_code == 204


@pytest.mark.heavy
async def test_of_two_administrators_who_end_each_other_at_once_one_is_refused(
    tenant: Tenant, ending: tuple[str, str, Any]
) -> None:
    """By the same request and by different ones: both hold different roles, and each loses what is its own."""
    management, client = tenant.management, tenant.management.client
    for _ in range(ROUNDS):
        users = [await tenant.person() for _ in range(2)]
        roles = [await role_granting(management, tenant.scope) for _ in range(2)]
        for user, role in zip(users, roles, strict=True):
            await client.post(f"/api/users/{user}/roles", json={"roleIds": [role]})
        await management.database.execute("DELETE FROM user_roles WHERE role_id = $1", tenant.role)
        first = end(tenant, ending, user=users[0], role=roles[0])
        second = end(tenant, ENDINGS["suspended"], user=users[1], role=roles[1])
        answers = await at_once(first, second)
        assert sorted(answer.is_success for answer in answers) == [False, True]
        assert [refusal(answer) for answer in answers if not answer.is_success] == [LAST]
        await management.database.execute("DELETE FROM user_roles WHERE tenant_id = $1", management.tenant_id)
