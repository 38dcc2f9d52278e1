"""``/api/roles`` and assignments: from both sides, and their events."""

from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from tests.support.lengths import length
from tests.support.management_api import Management, at_once, issues, refusal, revision_of, unique


@pytest_asyncio.fixture
async def resource(management: Management) -> Any:
    """A resource with two scopes."""
    resource = await management.created("resources", name="Shop", indicator=f"https://{unique('shop')}.example.com")
    resource["scopes"] = [
        await management.created(f"resources/{resource['id']}/scopes", name=name) for name in ("read", "write")
    ]
    return resource


async def role_of(management: Management, role_type: str = "User", **members: Any) -> Any:
    return await management.created("roles", name=unique("role"), description="", type=role_type, **members)


async def test_a_role_is_shown_as_it_was_created_and_its_event_names_its_scopes(
    management: Management, resource: Any
) -> None:
    name = unique("reader")
    scope_ids = [scope["id"] for scope in resource["scopes"]]
    answer = await management.client.post(
        "/api/roles",
        json={"name": name, "description": "May read.", "type": "MachineToMachine", "scopeIds": scope_ids * 2},
    )
    role = answer.json()
    assert answer.status_code == 200
    assert role == {
        "tenantId": management.tenant_id,
        "id": role["id"],
        "name": name,
        "description": "May read.",
        "type": "MachineToMachine",
        "isDefault": False,
    }
    assert (await management.client.get(f"/api/roles/{role['id']}")).json() == role
    assert (await management.client.get(f"/api/roles/{role['id']}/scopes")).json() == resource["scopes"]
    event = await management.event("role", role["id"])
    assert event is not None
    assert (event.type, event.revision) == ("role.created", revision_of(answer))
    data = await management.event_data("role", role["id"])
    assert data == {
        "id": role["id"],
        "name": name,
        "type": "MachineToMachine",
        "scope_ids": sorted(scope_ids),
        "description": "May read.",
    }


async def test_scopes_are_added_once_and_removed_once(management: Management, resource: Any) -> None:
    role = await role_of(management)
    path, (read, write) = f"/api/roles/{role['id']}/scopes", resource["scopes"]
    added = await management.client.post(path, json={"scopeIds": [read["id"]]})
    assert (added.status_code, added.json()) == (201, [read])
    again = await management.client.post(path, json={"scopeIds": [read["id"]]})
    assert (again.status_code, again.json(), revision_of(again)) == (201, [read], revision_of(added))
    assert (await management.client.post(path, json={"scopeIds": [write["id"]]})).json() == [read, write]
    assert (await management.event_data("role", role["id"]))["scope_ids"] == sorted([read["id"], write["id"]])
    removed = await management.client.delete(f"{path}/{read['id']}")
    assert (removed.status_code, removed.content) == (204, b"")
    assert (await management.event_data("role", role["id"]))["scope_ids"] == [write["id"]]
    assert refusal(await management.client.delete(f"{path}/{read['id']}")) == (404, "entity.not_found")
    assert (await management.client.get(path)).json() == [write]


async def test_scopes_are_replaced_by_exactly_the_given_ones(management: Management, resource: Any) -> None:
    (read, write), role = resource["scopes"], await role_of(management)
    path = f"/api/roles/{role['id']}/scopes"
    first = await management.client.put(path, json={"scopeIds": [read["id"]]})
    assert (first.status_code, first.content) == (204, b"")
    other = await management.client.put(path, json={"scopeIds": [write["id"], write["id"]]})
    assert revision_of(other) == revision_of(first) + 2  # the role, and the scope that it lost
    assert (await management.client.get(path)).json() == [write]
    assert (await management.event_data("role", role["id"]))["scope_ids"] == [write["id"]]
    same = await management.client.put(path, json={"scopeIds": [write["id"]]})
    assert revision_of(same) == revision_of(other)
    refused = await management.client.put(path, json={"scopeIds": [read["id"], "x"]})
    assert refusal(refused) == (422, "entity.relation_foreign_key_not_found")
    assert (await management.client.get(path)).json() == [write]
    assert (await management.client.put(path, json={"scopeIds": []})).status_code == 204
    assert (await management.client.get(path)).json() == []


async def test_a_patch_of_a_role_changes_the_given_members_and_never_the_type(
    management: Management, resource: Any
) -> None:
    role = await role_of(management, scopeIds=[resource["scopes"][0]["id"]])
    path, name = f"/api/roles/{role['id']}", unique("renamed")
    answer = await management.client.patch(path, json={"name": name, "description": "Changed"})
    assert (answer.status_code, answer.json()) == (200, {**role, "name": name, "description": "Changed"})
    event = await management.event("role", role["id"])
    assert event is not None
    assert (event.type, event.revision) == ("role.updated", revision_of(answer))
    assert await management.event_data("role", role["id"]) == {
        "id": role["id"],
        "name": name,
        "type": "User",
        "scope_ids": [resource["scopes"][0]["id"]],
        "description": "Changed",
    }
    for body in ({}, {"name": name}, {"isDefault": None}):
        assert revision_of(await management.client.patch(path, json=body)) == revision_of(answer)
    made_default = await management.client.patch(path, json={"isDefault": True})
    assert made_default.json()["isDefault"] is True
    user = await management.created("users")
    assert (await management.client.get(f"/api/users/{user['id']}/roles")).json() == [made_default.json()]
    assert (await management.client.patch(path, json={"isDefault": None})).json()["isDefault"] is False
    assert issues(await management.client.patch(path, json={"type": "User"})) == {"type"}
    assert issues(await management.client.patch(path, json={"name": None, "description": None})) == {
        "name",
        "description",
    }
    other = await role_of(management)
    taken = await management.client.patch(path, json={"name": other["name"]})
    assert refusal(taken) == (422, "entity.unique_integrity_violation")
    machine_role = await role_of(management, "MachineToMachine")
    wrong = await management.client.patch(f"/api/roles/{machine_role['id']}", json={"isDefault": True})
    assert refusal(wrong) == (422, "entity.db_constraint_violated")
    assert refusal(await management.client.patch("/api/roles/none", json={})) == (404, "entity.not_exists")


async def test_a_deleted_role_is_removed_from_all_its_holders(management: Management, resource: Any) -> None:
    role = await role_of(management, scopeIds=[resource["scopes"][0]["id"]])
    user = await management.created("users")
    await management.client.post(f"/api/users/{user['id']}/roles", json={"roleIds": [role["id"]]})
    before = await management.revision()
    answer = await management.client.delete(f"/api/roles/{role['id']}")
    assert (answer.status_code, revision_of(answer)) == (204, before + 2)  # the role, and the scope that it granted
    assert await management.event_data("role", role["id"]) == {"id": role["id"], "deleted": True}
    assert (await management.client.get(f"/api/users/{user['id']}/roles")).json() == []
    assert refusal(await management.client.get(f"/api/roles/{role['id']}")) == (404, "entity.not_exists_with_id")
    assert refusal(await management.client.delete(f"/api/roles/{role['id']}")) == (404, "entity.not_found")


async def test_roles_of_a_user_are_added_replaced_and_removed(management: Management) -> None:
    user = await management.created("users")
    roles = sorted([await role_of(management) for _ in range(3)], key=lambda role: role["name"])
    first, second, third = (role["id"] for role in roles)
    path = f"/api/users/{user['id']}/roles"
    subject = ("assignment", "user", user["id"])

    assert (await management.client.post(path, json={"roleIds": [first, first]})).json()["roleIds"] == [first]
    assert await management.event_data(*subject) == {"id": user["id"], "role_ids": [first]}
    added = await management.client.post(path, json={"roleIds": [second, first]})
    assert (added.status_code, added.json()) == (201, {"roleIds": [second, first], "addedRoleIds": [second]})
    assert (await management.client.get(path)).json() == roles[:2]
    replaced = await management.client.put(path, json={"roleIds": [third, second]})
    assert (replaced.status_code, replaced.content) == (204, b"")
    assert (await management.client.get(path)).json() == roles[1:]
    assert await management.event_data(*subject) == {"id": user["id"], "role_ids": sorted([second, third])}
    same = await management.client.put(path, json={"roleIds": [second, third]})
    assert revision_of(same) == revision_of(replaced)
    assert (await management.client.delete(f"{path}/{second}")).status_code == 204
    assert refusal(await management.client.delete(f"{path}/{second}")) == (404, "entity.not_found")
    assert (await management.client.put(path, json={"roleIds": []})).status_code == 204
    assert await management.event_data(*subject) == {"id": user["id"]}


async def test_roles_of_an_application_are_added_replaced_and_removed(management: Management) -> None:
    machine = await management.machine()
    first, second = [(await role_of(management, "MachineToMachine"))["id"] for _ in range(2)]
    path = f"/api/applications/{machine}/roles"
    subject = ("assignment", "application", machine)
    assert (await management.client.post(path, json={"roleIds": [first]})).status_code == 201
    assert (await management.client.put(path, json={"roleIds": [second]})).status_code == 204
    assert [role["id"] for role in (await management.client.get(path)).json()] == [second]
    assert await management.event_data(*subject) == {
        "id": machine,
        "holder_kind": "application",
        "role_ids": [second],
    }
    assert (await management.client.delete(f"{path}/{second}")).status_code == 204
    await management.client.delete(f"/api/applications/{machine}")
    assert await management.event_data(*subject) == {"id": machine, "deleted": True, "holder_kind": "application"}


async def test_holders_are_added_and_removed_from_the_role_s_side(management: Management) -> None:
    role = await role_of(management)
    users = sorted(
        [await management.created("users", name=unique("holder")) for _ in range(3)], key=lambda user: user["name"]
    )
    ids = [user["id"] for user in users]
    path = f"/api/roles/{role['id']}/users"
    before = await management.revision()
    added = await management.client.post(path, json={"userIds": [*ids, ids[0]]})
    assert (added.status_code, revision_of(added)) == (201, before + 3)
    again = await management.client.post(path, json={"userIds": ids})
    assert (again.status_code, revision_of(again)) == (201, before + 3)
    assert (await management.client.get(path)).json() == users
    assert (await management.client.delete(f"{path}/{ids[1]}")).status_code == 204
    assert refusal(await management.client.delete(f"{path}/{ids[1]}")) == (404, "entity.not_found")
    assert (await management.client.get(path)).json() == [users[0], users[2]]
    assert await management.event_data("assignment", "user", ids[1]) == {"id": ids[1]}

    machine_role, machine = await role_of(management, "MachineToMachine"), await management.machine()
    path = f"/api/roles/{machine_role['id']}/applications"
    assert (await management.client.post(path, json={"applicationIds": [machine]})).status_code == 201
    assert [application["id"] for application in (await management.client.get(path)).json()] == [machine]
    assert (await management.client.delete(f"{path}/{machine}")).status_code == 204
    assert (await management.client.get(path)).json() == []


async def test_holders_are_replaced_by_exactly_the_given_ones(management: Management) -> None:
    role, other = await role_of(management), await role_of(management)
    first, second, third = [(await management.created("users"))["id"] for _ in range(3)]
    await management.client.post(f"/api/users/{first}/roles", json={"roleIds": [other["id"]]})
    path = f"/api/roles/{role['id']}/users"
    assert (await management.client.put(path, json={"userIds": [first, second]})).status_code == 204
    before = await management.revision()
    replaced = await management.client.put(path, json={"userIds": [third, second, third]})
    assert (replaced.status_code, replaced.content, revision_of(replaced)) == (
        204,
        b"",
        before + 3,
    )  # two users, one of whom lost it
    assert {user["id"] for user in (await management.client.get(path)).json()} == {second, third}
    assert await management.event_data("assignment", "user", first) == {"id": first, "role_ids": [other["id"]]}
    assert await management.event_data("assignment", "user", third) == {"id": third, "role_ids": [role["id"]]}
    same = await management.client.put(path, json={"userIds": [second, third]})
    assert revision_of(same) == revision_of(replaced)
    unknown = await management.client.put(path, json={"userIds": [first, "x"]})
    assert refusal(unknown) == (422, "entity.relation_foreign_key_not_found")
    assert {user["id"] for user in (await management.client.get(path)).json()} == {second, third}

    machine_role, machine = await role_of(management, "MachineToMachine"), await management.machine()
    website = await management.created("applications", name="Website", type="Traditional")
    path = f"/api/roles/{machine_role['id']}/applications"
    assert (await management.client.put(path, json={"applicationIds": [machine]})).status_code == 204
    wrong = (422, "entity.db_constraint_violated")
    assert refusal(await management.client.put(path, json={"applicationIds": [website["id"]]})) == wrong
    of_users = f"/api/roles/{role['id']}/applications"
    assert refusal(await management.client.put(of_users, json={"applicationIds": [machine]})) == wrong
    assert (await management.client.put(path, json={"applicationIds": []})).status_code == 204
    assert (await management.client.get(path)).json() == []


@pytest.mark.heavy
async def test_one_of_several_concurrent_replacements_holds_whole_and_none_fails(management: Management) -> None:
    role = (await role_of(management))["id"]
    users = [(await management.created("users"))["id"] for _ in range(6)]
    holders = [set(users[:3]), set(users[3:]), set(users[1:5]), set(users[::2]), set(users[::-2])]
    for _ in range(length(short=3, long=5)):
        answers = await at_once(
            *(management.client.put(f"/api/roles/{role}/users", json={"userIds": list(each)}) for each in holders)
        )
        assert {answer.status_code for answer in answers} == {204}
        held = {user["id"] for user in (await management.client.get(f"/api/roles/{role}/users")).json()}
        assert held in holders
        for user in users:
            state = await management.event_data("assignment", "user", user)
            assert (state or {}).get("role_ids", []) == ([role] if user in held else [])


async def test_a_relation_to_an_unknown_id_is_refused_whole(management: Management, resource: Any) -> None:
    unknown = (422, "entity.relation_foreign_key_not_found")
    role, user, machine = await role_of(management), await management.created("users"), await management.machine()
    before = await management.revision()
    post, put = management.client.post, management.client.put
    role_ids = {"roleIds": [role["id"], "nothing"]}
    assert refusal(await post(f"/api/users/{user['id']}/roles", json=role_ids)) == unknown
    assert refusal(await put(f"/api/users/{user['id']}/roles", json=role_ids)) == unknown
    assert refusal(await post(f"/api/applications/{machine}/roles", json={"roleIds": ["x"]})) == unknown
    assert refusal(await post(f"/api/roles/{role['id']}/users", json={"userIds": [user["id"], "x"]})) == unknown
    assert refusal(await post(f"/api/roles/{role['id']}/applications", json={"applicationIds": ["x"]})) == unknown
    scope_ids = [resource["scopes"][0]["id"], "x"]
    assert refusal(await post(f"/api/roles/{role['id']}/scopes", json={"scopeIds": scope_ids})) == unknown
    body = {"name": unique("r"), "description": "", "type": "User", "scopeIds": scope_ids}
    assert refusal(await post("/api/roles", json=body)) == unknown
    assert await management.revision() == before
    assert (await management.client.get(f"/api/users/{user['id']}/roles")).json() == []
    assert (await management.client.get(f"/api/roles/{role['id']}/scopes")).json() == []


@pytest.mark.heavy
async def test_adding_holders_answers_them(management: Management) -> None:
    """As the family of servers does: no holders or scopes are an error, no roles are not."""
    user, machine = (await management.created("users"))["id"], await management.machine()
    role, machine_role = await role_of(management), await role_of(management, "MachineToMachine")
    for path, member, added in (
        (f"/api/roles/{role['id']}/users", "userIds", user),
        (f"/api/roles/{machine_role['id']}/applications", "applicationIds", machine),
    ):
        answer = await management.client.post(path, json={member: [added, added]})
        assert (answer.status_code, answer.json()) == (201, {member: [added]})
        assert issues(await management.client.post(path, json={member: []})) == {member}
    scopes = await management.client.post(f"/api/roles/{role['id']}/scopes", json={"scopeIds": []})
    assert issues(scopes) == {"scopeIds"}
    for path, held in (
        (f"/api/users/{user}/roles", role["id"]),
        (f"/api/applications/{machine}/roles", machine_role["id"]),
    ):
        kind = "User" if held == role["id"] else "MachineToMachine"
        new = (await role_of(management, kind))["id"]
        for asked, added in (([new, held, new], [new]), ([new], []), ([], [])):
            answer = await management.client.post(path, json={"roleIds": asked})
            expected = {"roleIds": list(dict.fromkeys(asked)), "addedRoleIds": added}
            assert (answer.status_code, answer.json()) == (201, expected)


async def test_a_role_or_application_of_the_wrong_kind_is_refused(management: Management) -> None:
    wrong = (422, "entity.db_constraint_violated")
    for_users, for_machines = await role_of(management), await role_of(management, "MachineToMachine")
    user, machine = await management.created("users"), await management.machine()
    website = await management.created("applications", name="Website", type="Traditional")
    post = management.client.post
    assert refusal(await post(f"/api/users/{user['id']}/roles", json={"roleIds": [for_machines["id"]]})) == wrong
    assert refusal(await post(f"/api/applications/{machine}/roles", json={"roleIds": [for_users["id"]]})) == wrong
    path = f"/api/applications/{website['id']}/roles"
    assert refusal(await post(path, json={"roleIds": [for_machines["id"]]})) == wrong
    assert refusal(await post(f"/api/roles/{for_machines['id']}/users", json={"userIds": [user["id"]]})) == wrong
    path = f"/api/roles/{for_machines['id']}/applications"
    assert refusal(await post(path, json={"applicationIds": [website["id"], machine]})) == wrong
    path = f"/api/roles/{for_users['id']}/applications"
    assert refusal(await post(path, json={"applicationIds": [machine]})) == wrong
    body = {"name": unique("r"), "description": "", "type": "MachineToMachine", "isDefault": True}
    assert refusal(await post("/api/roles", json=body)) == wrong


async def test_two_roles_never_share_a_name(management: Management) -> None:
    role = await role_of(management)
    body = {"name": role["name"], "description": "", "type": "User"}
    assert refusal(await management.client.post("/api/roles", json=body)) == (422, "entity.unique_integrity_violation")


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name", "description"}),
        ({"name": "", "description": ""}, {"name"}),
        ({"name": "n", "description": "", "type": None}, {"type"}),
        ({"name": "n", "description": None, "type": "User"}, {"description"}),
        ({"name": "n", "description": "", "type": "Machine-to-machine"}, {"type"}),
        ({"name": "n", "description": "", "type": "User", "scopeIds": "all"}, {"scopeIds"}),
        ({"name": "n", "description": "", "type": "User", "scopeIds": [1]}, {"scopeIds[0]"}),
        ({"name": "n", "description": "", "type": "User", "isDefault": "yes"}, {"isDefault"}),
        ({"name": "n", "description": "", "type": "User", "id": "mine"}, {"id"}),
    ],
)
async def test_every_wrong_member_of_a_new_role_is_named(
    management_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await management_api.post("/api/roles", json=body)) == paths


@pytest.mark.heavy
async def test_roles_assigned_while_the_role_is_deleted_leave_no_orphan_and_no_error(management: Management) -> None:
    users = [(await management.created("users"))["id"] for _ in range(4)]
    for _ in range(length(short=4, long=10)):
        role, kept = (await role_of(management))["id"], (await role_of(management))["id"]
        answers = await at_once(
            *(management.client.post(f"/api/users/{user}/roles", json={"roleIds": [role, kept]}) for user in users),
            management.client.post(f"/api/roles/{role}/users", json={"userIds": users}),
            management.client.delete(f"/api/roles/{role}"),
            *(management.client.put(f"/api/users/{user}/roles", json={"roleIds": [kept, role]}) for user in users),
            management.client.put(f"/api/roles/{role}/users", json={"userIds": users[:2]}),
            management.client.put(f"/api/roles/{kept}/users", json={"userIds": users[2:]}),
            management.client.patch(f"/api/roles/{role}", json={"description": "changed"}),
        )
        assert {answer.status_code for answer in answers} <= {200, 201, 204, 404, 422}
        for user in users:
            held = [found["id"] for found in (await management.client.get(f"/api/users/{user}/roles")).json()]
            assert role not in held
        orphans = await management.database.fetchval("SELECT count(*) FROM user_roles WHERE role_id = $1", role)
        assert orphans == 0
        assert await management.event_data("role", role) == {"id": role, "deleted": True}


@pytest.mark.heavy
async def test_concurrent_deletions_of_users_and_their_roles_never_fail(management: Management) -> None:
    for _ in range(length(short=3, long=5)):
        users = [(await management.created("users"))["id"] for _ in range(4)]
        roles = [(await role_of(management))["id"] for _ in range(4)]
        for user in users:
            await management.client.put(f"/api/users/{user}/roles", json={"roleIds": roles})
        answers = await at_once(
            *(management.client.delete(f"/api/users/{user}") for user in users),
            *(management.client.delete(f"/api/roles/{role}") for role in roles),
        )
        assert {answer.status_code for answer in answers} == {204}


@pytest.mark.heavy
@pytest.mark.parametrize("count", [2**8, 2**13])
async def test_no_user_of_a_large_role_is_left_out(management: Management, count: int) -> None:
    """No silent cap."""
    role = await role_of(management)
    columns = (
        "tenant_id, id, is_email_verified, is_suspended, tokens_valid_after, "
        "custom_data, profile, search_key, created_at, updated_at"
    )
    await management.database.execute(
        f"INSERT INTO users ({columns}) SELECT $1, $2 || n, false, false, 0, '{{}}', '{{}}', '', 0, 0 "
        "FROM generate_series(1, $3::int) AS n",
        management.tenant_id,
        role["id"],
        count,
    )
    await management.database.execute("ANALYZE users")  # as autovacuum does within a minute
    ids = [f"{role['id']}{number}" for number in range(1, count + 1)]
    before = await management.revision()
    answer = await management.client.post(f"/api/roles/{role['id']}/users", json={"userIds": ids})
    assert (answer.status_code, revision_of(answer)) == (201, before + count)
    listed = await management.client.get(f"/api/roles/{role['id']}/users", params={"page_size": 1})
    assert listed.headers["Total-Number"] == str(count)
    assert (await management.client.delete(f"/api/roles/{role['id']}")).status_code == 204
    await management.database.execute(
        "DELETE FROM users WHERE tenant_id = $1 AND id LIKE $2", management.tenant_id, f"{role['id']}%"
    )


@pytest.mark.heavy
async def test_a_role_with_more_scopes_than_an_event_can_carry_is_refused(management: Management) -> None:
    resource = await management.created("resources", name="Wide", indicator=f"https://{unique('w')}.example.com")
    await management.database.execute(
        "INSERT INTO scopes (tenant_id, id, resource_id, name, created_at) "
        "SELECT $1, $2 || n, $2, 's' || n, 0 FROM generate_series(1, 10001) AS n",
        management.tenant_id,
        resource["id"],
    )
    await management.database.execute("ANALYZE scopes")  # as autovacuum does within a minute
    ids = [f"{resource['id']}{number}" for number in range(1, 10_002)]
    role = await role_of(management, scopeIds=ids[:10_000])
    event = await management.event("role", role["id"])
    assert event is not None
    assert len(bytes(event.data)) < 512 * 1024
    one_more = await management.client.post(f"/api/roles/{role['id']}/scopes", json={"scopeIds": ids[10_000:]})
    assert refusal(one_more) == (422, "entity.db_constraint_violated")
    await management.client.delete(f"/api/resources/{resource['id']}")
