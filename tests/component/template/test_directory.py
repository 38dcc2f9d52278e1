"""template-service's projection of management-service: users, applications, resources and scopes."""

import asyncio
from typing import Any

import asyncpg
import msgspec
import pytest

from identity_common.wire.events import UserState
from stead.event_types import GrantedPermission, OrganizationRoleState
from tests.support.issuer import Issuer
from tests.support.lengths import length
from tests.support.management_api import Management, at_once, unique
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_api import Template
from tests.support.template_tables import TemplateTables, fold
from tests.support.waiting import WAIT_S

ORGANIZATIONS = length(short=60, long=1_000)
USERS = length(short=30, long=60)
DELETED = length(short=20, long=40)


async def known(template: Template, table: str, wanted: str) -> dict[str, object] | None:
    query = f"SELECT * FROM {table} WHERE tenant_id = $1 AND id = $2"
    row = await template.database.fetchrow(query, template.tenant_id, wanted)
    return None if row is None else dict(row)


async def test_a_user_is_projected_with_its_state_and_deleted_with_it(template: Template) -> None:
    name = unique("Ada")
    user = await template.management.created("users", name=name, username=unique("ada").replace("-", "_"))
    await template.caught_up()
    row = await known(template, "known_users", user["id"])
    assert row is not None
    state = msgspec.json.decode(str(row["state"]), type=UserState)
    assert (row["name"], row["is_suspended"], state.username) == (name, False, user["username"])

    await template.management.client.patch(f"/api/users/{user['id']}/is-suspended", json={"isSuspended": True})
    await template.caught_up()
    row = await known(template, "known_users", user["id"])
    assert row is not None
    assert row["is_suspended"] is True

    await template.management.client.delete(f"/api/users/{user['id']}")
    await template.caught_up()
    assert await known(template, "known_users", user["id"]) is None


async def test_an_application_is_known_without_its_secrets(template: Template) -> None:
    application = await template.management.created("applications", name="Batch", type="MachineToMachine")
    await template.management.created(f"applications/{application['id']}/secrets", name="first")
    await template.caught_up()
    row = await known(template, "known_applications", application["id"])
    assert row is not None
    assert row["type"] == "MachineToMachine"
    assert "sha256" not in str(row["state"])


async def test_a_scope_goes_with_its_resource(template: Template) -> None:
    resource = await template.management.created("resources", name="Shop", indicator=f"https://{unique('shop')}.test")
    scope = await template.management.created(f"resources/{resource['id']}/scopes", name="read:orders")
    await template.caught_up()
    row = await known(template, "known_scopes", scope["id"])
    assert row is not None
    assert (row["name"], row["resource_id"]) == ("read:orders", resource["id"])
    await template.management.client.delete(f"/api/resources/{resource['id']}")
    await template.caught_up()
    assert await known(template, "known_scopes", scope["id"]) is None
    assert await known(template, "known_resources", resource["id"]) is None


async def told_causes(tables: TemplateTables, organization: str) -> list[tuple[int, str]]:
    await tables.settled()
    return [(state.version, state.cause) for state in await tables.told(organization)]


async def holder_of_scopes(template: Template, tables: TemplateTables, *names: str) -> tuple[Any, str, str]:
    """Return a resource with these scopes, an organization whose one member holds them, and the role."""
    resource = await template.resource(*names)
    await template.caught_up()
    role = (await template.role(resourceScopeIds=[scope["id"] for scope in resource["scopes"]]))["id"]
    organization = (await template.organization())["id"]
    await tables.members(organization, 1, role)
    await tables.settled()
    return resource, organization, role


async def test_a_renamed_scope_reaches_its_holders(template: Template, tables: TemplateTables) -> None:
    resource, organization, _ = await holder_of_scopes(template, tables, "read:orders")
    path = f"/api/resources/{resource['id']}/scopes/{resource['scopes'][0]['id']}"
    await template.management.client.patch(path, json={"description": "the name stays"})
    await template.caught_up()
    assert await told_causes(tables, organization) == [(1, "assignment")]
    await template.management.client.patch(path, json={"name": "read:all-orders"})
    await template.caught_up()
    assert await told_causes(tables, organization) == [(1, "assignment"), (2, "permission-changed")]
    last = (await tables.told(organization))[-1]
    assert last.permissions == (GrantedPermission("read:all-orders", resource["indicator"]),)
    assert last.removed == (GrantedPermission("read:orders", resource["indicator"]),)


async def test_a_deleted_scope_is_removed_from_its_roles_and_their_holders(
    template: Template, tables: TemplateTables
) -> None:
    resource, organization, role = await holder_of_scopes(template, tables, "a", "b")
    version = await template.version("roles", role)
    gone, kept = (scope["id"] for scope in resource["scopes"])
    await template.management.client.delete(f"/api/resources/{resource['id']}/scopes/{gone}")
    await template.caught_up()
    assert await told_causes(tables, organization) == [(1, "assignment"), (2, "permission-deleted")]
    events = await tables.events("role", role)
    state = msgspec.json.decode(events[-1].data, type=OrganizationRoleState)
    assert (events[-1].type, state.scope_ids, len(events)) == ("role.updated", (kept,), 2)
    assert await template.version("roles", role) == version + 1


async def test_deleting_a_resource_removes_all_of_its_scopes_from_roles(
    template: Template, tables: TemplateTables
) -> None:
    resource, organization, role = await holder_of_scopes(template, tables, "a", "b")
    await template.management.client.delete(f"/api/resources/{resource['id']}")
    await template.caught_up()
    assert await told_causes(tables, organization) == [(1, "assignment"), (2, "permission-deleted")]
    assert (await tables.told(organization))[-1].permissions == ()
    events = await tables.events("role", role)
    assert msgspec.json.decode(events[-1].data, type=OrganizationRoleState).scope_ids == ()
    assert len(events) == 2  # one for both scopes


@pytest.mark.heavy
async def test_a_deleted_user_leaves_a_great_many_organizations(template: Template, tables: TemplateTables) -> None:
    role = await tables.role(*await tables.permissions([unique("p")]))
    user = (await template.management.created("users", name="Everywhere"))["id"]
    await template.caught_up()
    organizations = [await tables.organization() for _ in range(ORGANIZATIONS)]
    for organization in organizations:
        await tables.members(organization, 0, role, ids=[user])
    await tables.settled(60)
    await template.management.client.delete(f"/api/users/{user}")
    await template.caught_up()
    await tables.settled(60)
    told = await tables.told("*", user)
    assert len(told) == 2 * ORGANIZATIONS
    assert fold(told) == {}
    assert {(state.version, state.cause) for state in told[ORGANIZATIONS:]} == {(2, "member-removed")}
    deleted = [event.subject for event in await tables.events("member", "*", user) if event.type == "member.deleted"]
    assert sorted(deleted) == sorted(f"{organization}/{user}" for organization in organizations)
    query = "SELECT count(*) FROM members WHERE tenant_id = $1 AND member_id = $2"
    assert await template.database.fetchval(query, template.tenant_id, user) == 0


async def test_a_deleted_application_leaves_its_organizations(template: Template, tables: TemplateTables) -> None:
    role = await tables.role(*await tables.permissions([unique("p")]), kind="MachineToMachine")
    application = await template.management.machine()
    await template.caught_up()
    organization = await tables.organization()
    await tables.members(organization, 0, role, ids=[application], kind="application")
    await tables.settled()
    await template.management.client.delete(f"/api/applications/{application}")
    await template.caught_up()
    assert await told_causes(tables, organization) == [(1, "assignment"), (2, "member-removed")]
    assert {state.member_type for state in await tables.told(organization)} == {"application"}
    assert await known(template, "known_applications", application) is None


async def users_on_both_sides(management: Management, database: asyncpg.Connection) -> tuple[set[str], set[str]]:
    """Return the ids of the users that management-service owns, and of those that template-service knows."""
    owned = await management.database.fetch("SELECT id FROM users WHERE tenant_id = $1", management.tenant_id)
    known = await database.fetch("SELECT id FROM known_users WHERE tenant_id = $1", management.tenant_id)
    return {row[0] for row in owned}, {row[0] for row in known}


@pytest.mark.heavy
async def test_two_replicas_apply_every_event_once(template: Template, tables: TemplateTables) -> None:
    async with Template(template.management) as second:
        organization = await tables.organization()
        role = await tables.role(*await tables.permissions([unique("p")]))
        made = [(await template.management.created("users", name=f"u{number}"))["id"] for number in range(USERS)]
        await template.caught_up()
        await tables.members(organization, 0, role, ids=made)
        await tables.settled()
        delete = template.management.client.delete
        deleting = await at_once(*(delete(f"/api/users/{user}") for user in made[:DELETED]))
        assert {answer.status_code for answer in deleting} == {204}
        await template.caught_up()
        await tables.settled()
        told = await tables.told(organization)
        assert len(told) == USERS + DELETED
        assert len(fold(told)) == USERS - DELETED
        deleted = [
            event.subject for event in await tables.events("member", organization, "*") if "deleted" in event.type
        ]
        assert sorted(deleted) == sorted(f"{organization}/{user}" for user in made[:DELETED])
        owned, here = await users_on_both_sides(template.management, second.database)
        # Other tests have users of their own.
        assert owned.intersection(made) == here.intersection(made) == set(made[DELETED:])


@pytest.mark.heavy
async def test_the_projection_recovers_by_itself_after_a_postgresql_outage(template: Template, issuer: Issuer) -> None:
    async with (
        Management(template.management.addresses, issuer) as management,
        TcpProxy(template.settings.database_url) as proxy,
        Template(management, database_url=proxy.url),
    ):
        made: list[str] = []
        for _ in range(3):
            await proxy.cut()
            made += [(await management.created("users", name="meanwhile"))["id"] for _ in range(5)]
            await proxy.mend()
            await management.client.delete(f"/api/users/{made.pop()}")
        async with asyncio.timeout(WAIT_S):
            while True:
                owned, here = await users_on_both_sides(management, template.database)
                if owned == here == set(made):
                    break
                await asyncio.sleep(0.05)


@pytest.mark.heavy
async def test_a_user_deleted_while_joining_is_not_a_member_afterwards(
    template: Template, tables: TemplateTables
) -> None:
    """Either the deletion finds the membership, or the membership is refused."""
    role, organization = await template.role(), await template.organization()
    path = f"/api/organizations/{organization['id']}/users"
    for _ in range(length(short=8, long=15)):
        user = (await template.management.created("users", name="In a hurry"))["id"]
        await template.caught_up()
        joined, _ = await asyncio.gather(
            template.client.post(path, json={"userIds": [user]}),
            template.management.client.delete(f"/api/users/{user}"),
        )
        assert joined.status_code in {201, 422}, joined.text
        if joined.status_code == 201:
            assigning = {"userIds": [user], "organizationRoleIds": [role["id"]]}
            assert (await template.client.post(f"{path}/roles", json=assigning)).status_code in {201, 422}
    await template.caught_up()
    query = "SELECT count(*) FROM members WHERE tenant_id = $1 AND organization_id = $2"
    assert await template.database.fetchval(query, template.tenant_id, organization["id"]) == 0
    await tables.settled()
    last = {event.subject: event.type for event in await tables.events("member", organization["id"], "*")}
    assert set(last.values()) <= {"member.deleted"}
