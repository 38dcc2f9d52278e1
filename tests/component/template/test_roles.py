"""``/api/organization-roles``, and what these roles grant."""

import asyncio
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from tests.support.management_api import AUDIENCE, at_once, issues, refusal, unique
from tests.support.template_api import RequestedFanOuts, Template, revision

PATH = "/api/organization-roles"
UNKNOWN = (422, "entity.relation_foreign_key_not_found")
WRONG_KIND = (422, "entity.db_constraint_violated")


@pytest_asyncio.fixture(scope="module")
async def resource(template: Template) -> Any:
    """A resource with two scopes."""
    return await template.resource("read:orders", "write:orders")


@pytest_asyncio.fixture(scope="module")
async def permissions(template: Template) -> list[Any]:
    """Three permissions, by name."""
    return [await template.permission(f"{unique(letter)}") for letter in "abc"]


def ids(found: list[Any]) -> list[str]:
    return [each["id"] for each in found]


def listed(resource: Any, scope: Any) -> Any:
    """Return a scope of a role as the API lists it."""
    of = {"id": resource["id"], "name": resource["name"]}
    return {
        "tenantId": scope["tenantId"],
        "id": scope["id"],
        "name": scope["name"],
        "resourceId": resource["id"],
        "resource": of,
    }


async def role_data(template: Template, role: Any) -> tuple[list[str], list[str]]:
    """Return the permissions and scopes in the last event of a role."""
    data = await template.event_data("role", role["id"])
    assert (data["id"], data.get("type", "User")) == (role["id"], role["type"])
    return data.get("permissionIds", []), data.get("scopeIds", [])


async def test_a_role_is_shown_as_it_was_created_and_its_event_names_what_it_grants(
    template: Template, permissions: list[Any], resource: Any, fan_outs: RequestedFanOuts
) -> None:
    name = unique("editor")
    body = {"name": name, "description": "May edit.", "type": "MachineToMachine"}
    permission_ids, scope_ids = ids(permissions), ids(resource["scopes"])
    contents = {"organizationScopeIds": permission_ids * 2, "resourceScopeIds": scope_ids * 2}
    answer = await template.client.post(PATH, json={**body, **contents})
    role = answer.json()
    assert answer.status_code == 201
    assert role == {"tenantId": template.tenant_id, "id": role["id"], **body}
    assert len(role["id"]) == 21
    assert (await template.client.get(f"{PATH}/{role['id']}")).json() == role
    assert (await template.client.get(f"{PATH}/{role['id']}/scopes")).json() == permissions
    scopes = (await template.client.get(f"{PATH}/{role['id']}/resource-scopes")).json()
    assert scopes == [listed(resource, scope) for scope in resource["scopes"]]
    event = await template.event("role", role["id"])
    assert event is not None
    assert (event.type, event.subject, event.revision) == ("role.created", role["id"], revision(answer))
    assert await template.event_data("role", role["id"]) == {
        "id": role["id"],
        "name": name,
        "type": "MachineToMachine",
        "permissionIds": sorted(permission_ids),
        "scopeIds": sorted(scope_ids),
    }
    assert await fan_outs.new() == set()  # it has no holders yet


async def test_a_role_is_for_users_and_grants_nothing_by_default(template: Template) -> None:
    role = await template.role()
    assert (role["type"], role["description"]) == ("User", None)
    assert await role_data(template, role) == ([], [])
    for contents in ("scopes", "resource-scopes"):
        answer = await template.client.get(f"{PATH}/{role['id']}/{contents}")
        assert (answer.json(), answer.headers["Total-Number"]) == ([], "0")


async def test_the_list_shows_what_every_role_grants(template: Template, permissions: list[Any], resource: Any) -> None:
    marker = unique("listed")
    both = await template.role(
        name=f"{marker} b", organizationScopeIds=ids(permissions), resourceScopeIds=ids(resource["scopes"])
    )
    neither = await template.role(name=f"{marker} a", description="nothing")
    answer = await template.client.get(PATH, params={"q": marker})
    assert answer.headers["Total-Number"] == "2"
    of = {"id": resource["id"], "name": resource["name"]}
    assert answer.json() == [
        {**neither, "scopes": [], "resourceScopes": []},
        {
            **both,
            "scopes": [{"id": each["id"], "name": each["name"]} for each in permissions],
            "resourceScopes": [{"id": each["id"], "name": each["name"], "resource": of} for each in resource["scopes"]],
        },
    ]


@pytest.mark.parametrize("kind", ["scopes", "resource-scopes"])
async def test_contents_are_added_replaced_and_removed_each_with_an_event_a_version_and_a_fan_out(
    template: Template, permissions: list[Any], resource: Any, fan_outs: RequestedFanOuts, kind: str
) -> None:
    is_permission = kind == "scopes"
    first, second = ids(permissions)[:2] if is_permission else ids(resource["scopes"])
    member = "organizationScopeIds" if is_permission else "scopeIds"
    other = {"resourceScopeIds": ids(resource["scopes"])[:1]} if is_permission else {}
    role = await template.role(**other)
    path, requested = f"{PATH}/{role['id']}/{kind}", {("role-changed", role["id"])}

    async def granted() -> list[str]:
        of_permissions, of_scopes = await role_data(template, role)
        assert is_permission or of_permissions == []
        return of_permissions if is_permission else of_scopes

    async def changes(answer: httpx.Response, status: int, *added: str) -> bool:
        assert (answer.status_code, answer.json() if added else answer.content) == (
            status,
            {member: list(added)} if added else b"",
        )
        changed = revision(answer) > before
        assert await fan_outs.new() == (requested if changed else set())
        assert await template.version("roles", role["id"]) == version + changed
        assert revision(answer) == before + changed
        assert (await role_data(template, role))[1 if is_permission else 0] == ids(resource["scopes"])[
            : 1 if is_permission else 0
        ]
        return changed

    before, version = await template.revision(), 1
    assert await changes(await template.client.post(path, json={member: [first, first]}), 201, first)
    assert await granted() == [first]
    before, version = before + 1, 2
    assert not await changes(await template.client.post(path, json={member: [first]}), 201, first)
    assert issues(await template.client.post(path, json={member: []})) == {member}
    assert not await changes(await template.client.put(path, json={member: [first, first]}), 204)
    assert await changes(await template.client.post(path, json={member: [second, first]}), 201, second, first)
    assert await granted() == sorted([first, second])
    before, version = before + 1, 3
    assert await changes(await template.client.put(path, json={member: [second]}), 204)
    assert await granted() == [second]
    before, version = before + 1, 4
    assert await changes(await template.client.put(path, json={member: [first]}), 204)
    assert await granted() == [first]
    before, version = before + 1, 5
    assert await changes(await template.client.delete(f"{path}/{first}"), 204)
    assert refusal(await template.client.delete(f"{path}/{first}")) == (404, "entity.not_found")
    assert (await template.client.get(path)).json() == []
    before, version = before + 1, 6
    assert not await changes(await template.client.put(path, json={member: []}), 204)
    event = await template.event("role", role["id"])
    assert event is not None
    assert event.type == "role.updated"


async def test_a_patch_changes_only_the_given_members_of_a_role_and_requests_no_fan_out(
    template: Template, permissions: list[Any], fan_outs: RequestedFanOuts
) -> None:
    role = await template.role(organizationScopeIds=ids(permissions))
    path, name = f"{PATH}/{role['id']}", unique("renamed")
    answer = await template.client.patch(path, json={"name": name, "description": "Changed"})
    changed = {**role, "name": name, "description": "Changed"}
    assert (answer.status_code, answer.json()) == (200, changed)
    event = await template.event("role", role["id"])
    assert event is not None
    assert (event.type, event.revision) == ("role.updated", revision(answer))
    assert (await template.event_data("role", role["id"]))["name"] == name
    assert (await role_data(template, role))[0] == sorted(ids(permissions))
    assert await template.version("roles", role["id"]) == 2
    for body in ({}, {"name": name}, {"type": "User"}, {"description": "Changed"}):
        same = await template.client.patch(path, json=body)
        assert (same.json(), revision(same)) == (changed, revision(answer))
    assert (await template.client.patch(path, json={"description": None})).json()["description"] is None
    typed = await template.client.patch(path, json={"type": "MachineToMachine"})
    assert typed.json() == {**changed, "description": None, "type": "MachineToMachine"}
    assert (await template.event_data("role", role["id"]))["type"] == "MachineToMachine"
    wrong: dict[str, Any] = {"name": None, "description": 1, "type": None, "organizationScopeIds": []}
    assert issues(await template.client.patch(path, json=wrong)) == wrong.keys()
    other = await template.role()
    taken = await template.client.patch(path, json={"name": other["name"]})
    assert refusal(taken) == (422, "entity.unique_integrity_violation")
    assert await fan_outs.new() == set()


async def test_the_type_of_an_assigned_role_cannot_change(template: Template) -> None:
    role, organization = await template.role(), await template.organization()
    path, machine = f"{PATH}/{role['id']}", {"type": "MachineToMachine"}
    user = (await template.management.created("users"))["id"]
    await template.join(organization["id"], user, role_ids=[role["id"]])
    assert refusal(await template.client.patch(path, json=machine)) == WRONG_KIND
    assert (await template.client.patch(path, json={"type": "User"})).json() == role
    renamed = await template.client.patch(path, json={"name": unique("renamed"), **machine})
    assert refusal(renamed) == WRONG_KIND
    assert (await template.client.get(path)).json() == role
    await template.client.delete(f"/api/organizations/{organization['id']}")
    changed = await template.client.patch(path, json=machine)
    assert (changed.status_code, changed.json()) == (200, {**role, **machine})


async def test_a_change_of_type_waits_for_a_concurrent_assignment(template: Template) -> None:
    role, organization = await template.role(), await template.organization()
    user = (await template.management.created("users"))["id"]
    transaction = template.database.transaction()
    await transaction.start()
    lock = "SELECT type FROM roles WHERE tenant_id = $1 AND id = $2 FOR KEY SHARE"
    assert await template.database.fetchval(lock, template.tenant_id, role["id"]) == "User"
    change = template.client.patch(f"{PATH}/{role['id']}", json={"type": "MachineToMachine"})
    changing = asyncio.create_task(change)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(changing), 0.3)
    renamed = await template.client.patch(f"/api/organizations/{organization['id']}", json={"name": unique("o")})
    assert renamed.status_code == 200
    await template.join(organization["id"], user, role_ids=[role["id"]])
    await transaction.commit()
    assert refusal(await changing) == WRONG_KIND


async def test_a_deleted_role_is_gone_at_once_and_its_assignments_are_removed_later(
    template: Template, permissions: list[Any], fan_outs: RequestedFanOuts
) -> None:
    role = await template.role(organizationScopeIds=ids(permissions))
    before = await template.revision()
    answer = await template.client.delete(f"{PATH}/{role['id']}")
    assert (answer.status_code, answer.content, revision(answer)) == (204, b"", before + 1)
    assert await template.event_data("role", role["id"]) == {"id": role["id"], "deleted": True}
    assert await fan_outs.new() == {("role-deleted", role["id"])}
    assert refusal(await template.client.get(f"{PATH}/{role['id']}")) == (404, "entity.not_exists_with_id")
    assert refusal(await template.client.delete(f"{PATH}/{role['id']}")) == (404, "entity.not_found")
    assert refusal(await template.client.patch(f"{PATH}/{role['id']}", json={})) == (404, "entity.not_exists")
    remaining = "SELECT count(*) FROM role_permissions WHERE tenant_id = $1 AND role_id = $2"
    assert await template.database.fetchval(remaining, template.tenant_id, role["id"]) == 0
    assert (await template.role(name=role["name"]))["id"] != role["id"]


async def test_one_unknown_id_refuses_the_whole_request(
    template: Template, permissions: list[Any], resource: Any, fan_outs: RequestedFanOuts
) -> None:
    role = await template.role(organizationScopeIds=ids(permissions)[:1])
    permission, scope = permissions[1]["id"], resource["scopes"][0]["id"]
    path = f"{PATH}/{role['id']}"
    before = await template.revision()
    for send in (template.client.post, template.client.put):
        for kind, member, known in (
            ("scopes", "organizationScopeIds", permission),
            ("resource-scopes", "scopeIds", scope),
        ):
            for unknown in ("nothing", "", known.upper(), scope if kind == "scopes" else permission, role["id"]):
                answer = await send(f"{path}/{kind}", json={member: [known, unknown]})
                assert refusal(answer) == UNKNOWN, (kind, unknown)
    for contents in (
        {"organizationScopeIds": [permission, scope]},
        {"resourceScopeIds": [scope, permission]},
        {"organizationScopeIds": [permission], "resourceScopeIds": ["nothing"]},
    ):
        name = unique("half")
        assert refusal(await template.client.post(PATH, json={"name": name, **contents})) == UNKNOWN
        assert (await template.client.get(PATH, params={"q": name})).json() == []
    assert await template.revision() == before
    assert await role_data(template, role) == (ids(permissions)[:1], [])
    assert await fan_outs.new() == set()


async def test_a_scope_that_was_just_created_is_found_without_a_header(template: Template) -> None:
    role = await template.role()
    made = []
    for number in range(5):
        resource = await template.resource("read")
        made.append(resource["scopes"][0]["id"])
        if number % 2:
            answer = await template.client.post(f"{PATH}/{role['id']}/resource-scopes", json={"scopeIds": made[-1:]})
            assert answer.status_code == 201, answer.text
        else:
            answer = await template.client.put(f"{PATH}/{role['id']}/resource-scopes", json={"scopeIds": made})
            assert answer.status_code == 204, answer.text
    assert (await role_data(template, role))[1] == sorted(made)
    latest = (await template.resource("read"))["scopes"][0]["id"]
    assert (await role_data(template, await template.role(resourceScopeIds=[latest])))[1] == [latest]


async def test_a_scope_is_gone_with_its_resource(template: Template) -> None:
    resource = await template.resource("read", "write")
    role = await template.role(resourceScopeIds=ids(resource["scopes"]))
    await template.management.client.delete(f"/api/resources/{resource['id']}")
    await template.caught_up()
    assert (await template.client.get(f"{PATH}/{role['id']}/resource-scopes")).json() == []
    assert await role_data(template, role) == ([], [])
    again = {"scopeIds": ids(resource["scopes"])}
    assert refusal(await template.client.put(f"{PATH}/{role['id']}/resource-scopes", json=again)) == UNKNOWN


async def test_a_scope_without_its_resource_is_unknown(template: Template, resource: Any) -> None:
    """They arrive in separate events: a scope may be known before its resource."""
    role, scope = await template.role(), unique("scope")
    await template.database.execute(
        "INSERT INTO known_scopes (tenant_id, id, resource_id, name) VALUES ($1, $2, 'nothing', 'read')",
        template.tenant_id,
        scope,
    )
    answer = await template.client.post(f"{PATH}/{role['id']}/resource-scopes", json={"scopeIds": [scope]})
    assert refusal(answer) == UNKNOWN
    await template.database.execute("DELETE FROM known_scopes WHERE id = $1", scope)


async def test_no_organization_role_grants_scopes_of_the_management_api(template: Template, resource: Any) -> None:
    found = (await template.management.client.get("/api/resources")).json()
    own = next(each for each in found if each["indicator"] == AUDIENCE)
    scopes = (await template.management.client.get(f"/api/resources/{own['id']}/scopes")).json()
    role = await template.role(resourceScopeIds=ids(resource["scopes"]))
    path = f"{PATH}/{role['id']}/resource-scopes"
    for scope in scopes:
        for wanted in ([scope["id"]], [*ids(resource["scopes"]), scope["id"]]):
            assert refusal(await template.client.post(path, json={"scopeIds": wanted})) == WRONG_KIND
            assert refusal(await template.client.put(path, json={"scopeIds": wanted})) == WRONG_KIND
            body = {"name": unique("root"), "resourceScopeIds": wanted}
            assert refusal(await template.client.post(PATH, json=body)) == WRONG_KIND
    assert (await role_data(template, role))[1] == sorted(ids(resource["scopes"]))


async def test_two_roles_never_share_a_name(template: Template) -> None:
    role = await template.role()
    in_use = (422, "entity.unique_integrity_violation")
    assert refusal(await template.client.post(PATH, json={"name": role["name"]})) == in_use
    contested = unique("contested")
    answers = await at_once(*(template.client.post(PATH, json={"name": contested}) for _ in range(15)))
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 14


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name"}),
        ({"name": ""}, {"name"}),
        ({"name": "x" * 257, "description": "x" * 1025}, {"name", "description"}),
        ({"name": "n", "type": "Machine-to-machine"}, {"type"}),
        ({"name": "n", "type": None}, {"type"}),
        ({"name": "n", "organizationScopeIds": "all", "resourceScopeIds": None},
         {"organizationScopeIds", "resourceScopeIds"}),
        ({"name": "n", "organizationScopeIds": [1]}, {"organizationScopeIds[0]"}),
        ({"name": "n", "resourceScopeIds": ["x" * 257]}, {"resourceScopeIds[0]"}),
        ({"name": "n", "id": "mine", "scopes": []}, {"id", "scopes"}),
    ],
)  # fmt: skip
async def test_every_wrong_member_of_a_new_role_is_named(
    template_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await template_api.post(PATH, json=body)) == paths


@pytest.mark.heavy
async def test_a_role_grants_at_most_10_000_permissions_and_scopes(
    template: Template, resource: Any, fan_outs: RequestedFanOuts
) -> None:
    """The limit is explicit, not a silent cap, and the event fits into a message."""
    prefix = unique("p")
    await template.database.execute(
        "INSERT INTO permissions (tenant_id, id, name, version) "
        "SELECT $1, $2 || to_char(n, 'FM00000'), $2 || to_char(n, 'FM00000'), 1 FROM generate_series(1, 10001) AS n",
        template.tenant_id,
        prefix,
    )
    await template.database.execute("ANALYZE permissions")  # autovacuum would do it within a minute
    wanted = [f"{prefix}{number:05}" for number in range(1, 10_002)]
    role = await template.role(organizationScopeIds=wanted[:10_000])
    path, scope = f"{PATH}/{role['id']}", {"scopeIds": ids(resource["scopes"])[:1]}
    event = await template.event("role", role["id"])
    assert event is not None
    assert len(bytes(event.data)) < 512 * 1024
    assert (await role_data(template, role))[0] == wanted[:10_000]
    before, _ = await template.revision(), await fan_outs.new()
    one_more = {"organizationScopeIds": wanted[10_000:]}
    assert refusal(await template.client.post(f"{path}/scopes", json=one_more)) == WRONG_KIND
    assert refusal(await template.client.post(f"{path}/resource-scopes", json=scope)) == WRONG_KIND
    all_of_them = {"organizationScopeIds": wanted}
    assert refusal(await template.client.put(f"{path}/scopes", json=all_of_them)) == WRONG_KIND
    body = {"name": unique("too much"), "resourceScopeIds": scope["scopeIds"], "organizationScopeIds": wanted[1:]}
    assert refusal(await template.client.post(PATH, json=body)) == WRONG_KIND
    assert (await template.revision(), await fan_outs.new()) == (before, set())

    listed = await template.client.get(f"{path}/scopes")
    assert (len(listed.json()), listed.headers["Total-Number"]) == (10_000, "10000")
    (found,) = (await template.client.get(PATH, params={"q": role["name"]})).json()
    assert [each["id"] for each in found["scopes"]] == wanted[:10_000]
    shifted = await template.client.put(f"{path}/scopes", json={"organizationScopeIds": wanted[1:]})
    assert (shifted.status_code, revision(shifted)) == (204, before + 1)
    assert (await role_data(template, role))[0] == wanted[1:]
    await template.client.delete(path)
    await template.database.execute("DELETE FROM permissions WHERE id LIKE $1", f"{prefix}%")


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["scopes", "resource-scopes"])
async def test_65_537_unknown_ids_are_refused_like_one(template: Template, kind: str) -> None:
    """More than 2^16 items (CVE-2024-27101)."""
    role = await template.role()
    member = "organizationScopeIds" if kind == "scopes" else "scopeIds"
    unknown = {member: [f"unknown{number}" for number in range(2**16 + 1)]}
    assert refusal(await template.client.put(f"{PATH}/{role['id']}/{kind}", json=unknown)) == UNKNOWN
