"""Concurrent changes of the template: nothing is lost, half applied, orphaned or wrongly refused."""

import asyncio
import itertools
from typing import Any

import asyncpg
import pytest

from tests.support.databases import until_waited_for
from tests.support.lengths import length
from tests.support.management_api import at_once, refusal, unique
from tests.support.template_api import RequestedFanOuts, Template

pytestmark = pytest.mark.heavy

ROUNDS = length(short=3, long=6)


async def granted(template: Template, role: str) -> tuple[set[str], set[str]]:
    """Return what a role grants; assert that its last event agrees."""
    permissions, scopes = [
        {each["id"] for each in (await template.client.get(f"/api/organization-roles/{role}/{kind}")).json()}
        for kind in ("scopes", "resource-scopes")
    ]
    data = await template.event_data("role", role)
    assert (set(data.get("permissionIds", ())), set(data.get("scopeIds", ()))) == (permissions, scopes)
    return permissions, scopes


async def test_one_of_several_concurrent_replacements_holds_whole(template: Template) -> None:
    """Two admins edit one role: no half-applied PUT."""
    role = (await template.role())["id"]
    permissions = [(await template.permission())["id"] for _ in range(6)]
    scopes = [scope["id"] for scope in (await template.resource(*"abcdef"))["scopes"]]
    cuts = [slice(3), slice(3, 6), slice(1, 5), slice(None, None, 2), slice(None, None, -2)]
    for _ in range(ROUNDS):
        contents = [[*each[cut]] for each in (permissions, scopes) for cut in cuts]
        answers = await asyncio.gather(
            *(
                template.client.put(
                    f"/api/organization-roles/{role}/{'resource-scopes' if index >= len(cuts) else 'scopes'}",
                    json={"scopeIds" if index >= len(cuts) else "organizationScopeIds": ids},
                )
                for index, ids in enumerate(contents)
            )
        )
        assert {answer.status_code for answer in answers} == {204}
        held_permissions, held_scopes = await granted(template, role)
        assert held_permissions in [set(permissions[cut]) for cut in cuts]
        assert held_scopes in [set(scopes[cut]) for cut in cuts]


async def test_concurrent_additions_and_changes_lose_nothing(template: Template) -> None:
    """Two admins edit one role: no lost update."""
    for _ in range(ROUNDS):
        permissions = [(await template.permission())["id"] for _ in range(8)]
        role = (await template.role(organizationScopeIds=permissions[:2]))["id"]
        path, before = f"/api/organization-roles/{role}", await template.revision()
        name = unique("renamed")
        answers = await asyncio.gather(
            *(
                template.client.post(f"{path}/scopes", json={"organizationScopeIds": [permission]})
                for permission in permissions[2:]
            ),
            *(template.client.delete(f"{path}/scopes/{permission}") for permission in permissions[:2]),
            template.client.patch(path, json={"name": name}),
            template.client.patch(path, json={"description": "changed"}),
        )
        assert {answer.status_code for answer in answers} == {200, 201, 204}
        assert (await granted(template, role))[0] == set(permissions[2:])
        shown = (await template.client.get(path)).json()
        assert (shown["name"], shown["description"]) == (name, "changed")
        assert (await template.event_data("role", role))["name"] == name
        assert await template.version("roles", role) == 11
        assert await template.revision() == before + 10


async def created_permission(template: Template) -> tuple[str, list[tuple[str, str, Any]]]:
    permission = (await template.permission())["id"]
    roles = [(await template.role(organizationScopeIds=[permission]))["id"] for _ in range(2)]
    roles.append((await template.role())["id"])
    path, wanted = f"organization-scopes/{permission}", {"organizationScopeIds": [permission]}
    return path, [
        ("PATCH", path, {"name": unique("renamed")}),
        ("PATCH", path, {"description": "changed"}),
        *(("PUT", f"organization-roles/{role}/scopes", wanted) for role in roles),
        *(("POST", f"organization-roles/{role}/scopes", wanted) for role in roles),
        *(("DELETE", f"organization-roles/{role}/scopes/{permission}", None) for role in roles),
        ("POST", "organization-roles", {"name": unique("role"), **wanted}),
    ]


async def created_role(template: Template) -> tuple[str, list[tuple[str, str, Any]]]:
    permission = (await template.permission())["id"]
    scope = (await template.resource("read"))["scopes"][0]["id"]
    path = f"organization-roles/{(await template.role(organizationScopeIds=[permission]))['id']}"
    return path, [
        ("PATCH", path, {"name": unique("renamed"), "type": "MachineToMachine"}),
        ("PATCH", path, {"description": "changed"}),
        ("PUT", f"{path}/scopes", {"organizationScopeIds": []}),
        ("POST", f"{path}/scopes", {"organizationScopeIds": [permission]}),
        ("DELETE", f"{path}/scopes/{permission}", None),
        ("PUT", f"{path}/resource-scopes", {"scopeIds": [scope]}),
        ("PATCH", f"organization-scopes/{permission}", {"name": unique("renamed")}),
        ("DELETE", f"organization-scopes/{permission}", None),
    ]


async def created_organization(template: Template) -> tuple[str, list[tuple[str, str, Any]]]:
    path = f"organizations/{(await template.organization())['id']}"
    return path, [
        ("PATCH", path, {"name": unique("renamed")}),
        ("PATCH", path, {"customData": {"a": 1}}),
    ]


@pytest.mark.parametrize("create", [created_permission, created_role, created_organization],
                         ids=lambda create: create.__name__)  # fmt: skip
async def test_changes_that_race_a_deletion_precede_it_or_find_nothing(template: Template, create: Any) -> None:
    kinds = {"organization-scopes": "permission", "organization-roles": "role", "organizations": "organization"}
    orphans = "SELECT count(*) FROM role_permissions WHERE tenant_id = $1 AND $2 IN (role_id, permission_id)"
    for _ in range(ROUNDS):
        path, changes = await create(template)
        requests = [template.client.request(method, f"/api/{at}", json=body) for method, at, body in changes * 2]
        middle = len(requests) // 2
        requests[middle:middle] = [template.client.delete(f"/api/{path}") for _ in range(2)]
        answers = await at_once(*requests)
        deletions = sorted(answer.status_code for answer in answers[middle : middle + 2])
        assert deletions == [204, 404]
        assert {answer.status_code for answer in answers} <= {200, 201, 204, 404, 422}
        kind, _, deleted = path.partition("/")
        assert await template.database.fetchval(orphans, template.tenant_id, deleted) == 0
        assert await template.event_data(kinds[kind], deleted) == {"id": deleted, "deleted": True}
        for role in {at.split("/")[1] for _, at, _ in changes if at.startswith("organization-roles/")} - {deleted}:
            assert deleted not in (await granted(template, role))[0]


async def test_deleting_roles_and_their_permissions_concurrently_never_fails(template: Template) -> None:
    for _ in range(ROUNDS):
        permissions = [(await template.permission())["id"] for _ in range(4)]
        roles = [(await template.role(organizationScopeIds=permissions))["id"] for _ in range(4)]
        answers = await asyncio.gather(
            *(template.client.delete(f"/api/organization-scopes/{permission}") for permission in permissions),
            *(template.client.delete(f"/api/organization-roles/{role}") for role in roles[:2]),
            *(
                template.client.put(f"/api/organization-roles/{role}/scopes", json={"organizationScopeIds": []})
                for role in roles[2:]
            ),
        )
        assert {answer.status_code for answer in answers} == {204}
        for role in roles[2:]:
            assert await granted(template, role) == (set(), set())


@pytest.mark.parametrize("change", ["DELETE", "PATCH"])
async def test_a_concurrent_grant_of_a_permission_is_not_missed(
    template: Template, fan_outs: RequestedFanOuts, change: str
) -> None:
    """The granting transaction took its locks first and commits while the change waits for them."""
    permission = (await template.permission())["id"]
    before = (await template.role(organizationScopeIds=[permission]))["id"]
    meanwhile = (await template.role())["id"]
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    try:
        async with other.transaction():
            lock = "SELECT FROM roles WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
            await other.execute(lock, template.tenant_id, meanwhile)
            grant = "INSERT INTO role_permissions (tenant_id, role_id, permission_id) VALUES ($1, $2, $3)"
            await other.execute(grant, template.tenant_id, meanwhile, permission)
            body = {"name": unique("renamed")} if change == "PATCH" else None
            request = template.client.request(change, f"/api/organization-scopes/{permission}", json=body)
            changing = asyncio.create_task(request)
            await until_waited_for(other)
        answer = await changing
    finally:
        await other.close()
    assert answer.status_code in {200, 204}
    cause = "permission-deleted" if change == "DELETE" else "permission-changed"
    assert await fan_outs.new() == {(cause, before), (cause, meanwhile)}
    if change == "DELETE":
        assert await template.version("roles", meanwhile) == 2
        event = await template.event("role", meanwhile)
        assert event is not None
        assert event.type == "role.updated"
        assert await granted(template, meanwhile) == (set(), set())


@pytest.mark.servers
async def test_edits_in_different_lock_orders_never_deadlock(template: Template) -> None:
    """Many edits of many roles and permissions at once, each in its own order."""
    permissions = [(await template.permission())["id"] for _ in range(5)]
    roles = [(await template.role(organizationScopeIds=permissions))["id"] for _ in range(5)]
    orders = list(itertools.islice(itertools.permutations(permissions), 0, 120, 17))
    answers = await at_once(
        *(
            template.client.put(f"/api/organization-roles/{role}/scopes", json={"organizationScopeIds": order[:3]})
            for role in roles
            for order in orders
        ),
        *(
            template.client.patch(f"/api/organization-scopes/{permission}", json={"name": unique("renamed")})
            for permission in reversed(permissions)
        ),
        template.client.delete(f"/api/organization-scopes/{permissions[0]}"),
    )
    assert {answer.status_code for answer in answers} <= {200, 204, 404, 422}
    for role in roles:
        assert permissions[0] not in (await granted(template, role))[0]


async def test_concurrent_changes_of_a_permission_lose_nothing(template: Template) -> None:
    for number in range(ROUNDS):
        permission = await template.permission()
        path, name, before = (
            f"/api/organization-scopes/{permission['id']}",
            unique("renamed"),
            await template.revision(),
        )
        answers = await asyncio.gather(
            template.client.patch(path, json={"name": name}),
            template.client.patch(path, json={"description": f"round {number}"}),
        )
        assert {answer.status_code for answer in answers} == {200}
        changed = {**permission, "name": name, "description": f"round {number}"}
        assert (await template.client.get(path)).json() == changed
        assert await template.event_data("permission", permission["id"]) == {
            "id": permission["id"],
            "name": name,
            "description": f"round {number}",
        }
        assert (await template.version("permissions", permission["id"]), await template.revision()) == (3, before + 2)


@pytest.mark.parametrize("kind", ["scopes", "resource-scopes"])
@pytest.mark.parametrize("method", ["POST", "PUT", "CREATE"])
async def test_granting_what_is_being_deleted_is_refused_as_unknown(template: Template, kind: str, method: str) -> None:
    """The grant waits for the deletion; otherwise it would violate a foreign key."""
    role = (await template.role())["id"]
    is_permission = kind == "scopes"
    content = (await template.permission() if is_permission else (await template.resource("read"))["scopes"][0])["id"]
    await template.caught_up()
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    try:
        async with other.transaction():
            table = "permissions" if is_permission else "known_scopes"
            await other.execute(f"DELETE FROM {table} WHERE tenant_id = $1 AND id = $2", template.tenant_id, content)
            if method == "CREATE":
                body: dict[str, Any] = {"name": unique("role")}
                body["organizationScopeIds" if is_permission else "resourceScopeIds"] = [content]
                request = template.client.post("/api/organization-roles", json=body)
            else:
                body = {"organizationScopeIds" if is_permission else "scopeIds": [content]}
                request = template.client.request(method, f"/api/organization-roles/{role}/{kind}", json=body)
            granting = asyncio.create_task(request)
            await until_waited_for(other)
        answer = await granting
    finally:
        await other.close()
    assert refusal(answer) == (422, "entity.relation_foreign_key_not_found")
    assert await granted(template, role) == (set(), set())


@pytest.mark.parametrize("change", ["DELETE", "PATCH"])
async def test_a_concurrent_grant_of_a_scope_is_not_missed(
    template: Template, fan_outs: RequestedFanOuts, change: str
) -> None:
    """The same for a change by management-service, in the transaction that applies its event."""
    resource = await template.resource("read")
    scope = resource["scopes"][0]["id"]
    before, meanwhile = (await template.role(resourceScopeIds=[scope]))["id"], (await template.role())["id"]
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    try:
        async with other.transaction():
            lock = "SELECT FROM roles WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE"
            await other.execute(lock, template.tenant_id, meanwhile)
            grant = "INSERT INTO role_scopes (tenant_id, role_id, scope_id) VALUES ($1, $2, $3)"
            await other.execute(grant, template.tenant_id, meanwhile, scope)
            path, body = f"/api/resources/{resource['id']}/scopes/{scope}", {"name": "write"}
            changing = template.management.client.request(change, path, json=body if change == "PATCH" else None)
            assert (await changing).status_code in {200, 204}
            await until_waited_for(other)
        await template.caught_up()
    finally:
        await other.close()
    cause = "permission-deleted" if change == "DELETE" else "permission-changed"
    assert await fan_outs.new() == {(cause, before), (cause, meanwhile)}
    if change == "DELETE":
        assert await granted(template, meanwhile) == (set(), set())
        assert await template.version("roles", meanwhile) == 2
