"""``/api/organization-scopes``: organization permissions, and the events about them."""

import asyncio
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.management_api import at_once, issues, refusal, unique
from tests.support.template_api import RequestedFanOuts, Template, revision

PATH = "/api/organization-scopes"


async def test_a_permission_is_shown_as_it_was_created_and_its_event_says_the_same(template: Template) -> None:
    name = unique("read:members")
    answer = await template.client.post(PATH, json={"name": name, "description": "See who is in it"})
    permission = answer.json()
    assert answer.status_code == 201
    assert permission == {
        "tenantId": template.tenant_id,
        "id": permission["id"],
        "name": name,
        "description": "See who is in it",
    }
    assert len(permission["id"]) == 21
    assert (await template.client.get(f"{PATH}/{permission['id']}")).json() == permission
    event = await template.event("permission", permission["id"])
    assert event is not None
    assert (event.type, event.subject, event.revision) == ("permission.created", permission["id"], revision(answer))
    described = {"id": permission["id"], "name": name, "description": "See who is in it"}
    assert await template.event_data("permission", permission["id"]) == described
    assert (await template.permission())["description"] is None


async def test_renaming_a_permission_requests_a_fan_out_for_every_role_that_grants_it(
    template: Template, fan_outs: RequestedFanOuts
) -> None:
    permission = await template.permission()
    granting = [(await template.role(organizationScopeIds=[permission["id"]]))["id"] for _ in range(3)]
    await template.role()
    path, name = f"{PATH}/{permission['id']}", unique("renamed")
    await fan_outs.new()
    answer = await template.client.patch(path, json={"name": name})
    assert (answer.status_code, answer.json()) == (200, {**permission, "name": name})
    assert await template.version("permissions", permission["id"]) == 2
    event = await template.event("permission", permission["id"])
    assert event is not None
    assert (event.type, event.revision) == ("permission.updated", revision(answer))
    assert await template.event_data("permission", permission["id"]) == {"id": permission["id"], "name": name}
    assert await fan_outs.new() == {("permission-changed", role) for role in granting}


async def test_changing_a_description_makes_an_event_and_a_version_but_no_fan_out(
    template: Template, fan_outs: RequestedFanOuts
) -> None:
    permission = await template.permission()
    await template.role(organizationScopeIds=[permission["id"]])
    path = f"{PATH}/{permission['id']}"
    before = await template.revision()
    answer = await template.client.patch(path, json={"description": "other"})
    assert (answer.json(), revision(answer)) == ({**permission, "description": "other"}, before + 1)
    assert await template.version("permissions", permission["id"]) == 2
    cleared = await template.client.patch(path, json={"description": None})
    assert (cleared.json(), revision(cleared)) == (permission, before + 2)
    for body in ({}, {"name": permission["name"]}, {"description": None}):
        same = await template.client.patch(path, json=body)
        assert (same.status_code, same.json(), revision(same)) == (200, permission, before + 2)
    assert await template.version("permissions", permission["id"]) == 3
    assert {cause for cause, _ in await fan_outs.new()} == set()


async def test_a_deleted_permission_is_gone_from_every_role_that_granted_it(
    template: Template, fan_outs: RequestedFanOuts
) -> None:
    permission, kept = await template.permission(), await template.permission()
    ids = [permission["id"], kept["id"]]
    roles = [await template.role(organizationScopeIds=ids, type=kind) for kind in ("User", "MachineToMachine")]
    other = await template.role(organizationScopeIds=[kept["id"]])
    before, _ = await template.revision(), await fan_outs.new()
    answer = await template.client.delete(f"{PATH}/{permission['id']}")
    assert (answer.status_code, answer.content, revision(answer)) == (204, b"", before + 3)
    deleted = {"id": permission["id"], "deleted": True}
    assert await template.event_data("permission", permission["id"]) == deleted
    for role in roles:
        event = await template.event("role", role["id"])
        assert event is not None
        assert event.type == "role.updated"
        data = await template.event_data("role", role["id"])
        of_role = {"id": role["id"], "name": role["name"], "type": role["type"]}
        assert data == {**of_role, "permissionIds": [kept["id"]]}
        assert await template.version("roles", role["id"]) == 2
        assert (await template.client.get(f"/api/organization-roles/{role['id']}/scopes")).json() == [kept]
    assert await template.version("roles", other["id"]) == 1
    assert await fan_outs.new() == {("permission-deleted", role["id"]) for role in roles}
    assert refusal(await template.client.get(f"{PATH}/{permission['id']}")) == (404, "entity.not_exists_with_id")
    assert refusal(await template.client.delete(f"{PATH}/{permission['id']}")) == (404, "entity.not_found")
    assert refusal(await template.client.patch(f"{PATH}/{permission['id']}", json={})) == (404, "entity.not_exists")


async def test_a_name_is_unique_and_free_again_after_deletion(template: Template) -> None:
    first, second = await template.permission(), await template.permission()
    in_use = (422, "entity.unique_integrity_violation")
    before = await template.revision()
    assert refusal(await template.client.post(PATH, json={"name": first["name"]})) == in_use
    assert refusal(await template.client.patch(f"{PATH}/{second['id']}", json={"name": first["name"]})) == in_use
    assert await template.revision() == before
    assert (await template.permission(first["name"].upper()))["name"] == first["name"].upper()
    await template.client.delete(f"{PATH}/{first['id']}")
    again = await template.permission(first["name"])
    assert again["id"] != first["id"]


@pytest.mark.parametrize(
    "name",
    ["", "two words", " ", 'quo"te', "back\\slash", "ümlaut", "\U0001f600", "x" * 129, "x" * 4096, "openid", "profile",
     "offline_access", "urn:service:scope:organizations", "urn:service:x", "tab\t", "new\nline"],
)  # fmt: skip
async def test_an_invalid_permission_name_is_refused(template: Template, name: str) -> None:
    """RFC 6749 section 3.3."""
    refused = (422, "scope.invalid_name")
    before = await template.revision()
    assert refusal(await template.client.post(PATH, json={"name": name})) == refused
    permission = await template.permission()
    answer = await template.client.patch(f"{PATH}/{permission['id']}", json={"name": name})
    assert refusal(answer) == refused
    assert (await template.client.get(f"{PATH}/{permission['id']}")).json() == permission
    assert await template.revision() == before + 1


async def test_the_longest_name_and_every_allowed_character_are_accepted(template: Template) -> None:
    longest = unique("x").ljust(128, "x")
    assert (await template.permission(longest))["name"] == longest
    everything = "".join(map(chr, (0x21, *range(0x23, 0x5C), *range(0x5D, 0x7F))))
    assert (await template.permission(everything))["name"] == everything


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, {"name"}),
        ({"name": None}, {"name"}),
        ({"name": 1, "description": 1}, {"name", "description"}),
        ({"name": "x" * 4097}, {"name"}),
        ({"name": ["n"]}, {"name"}),
        ({"name": "n", "description": "x" * 257}, {"description"}),
        ({"name": "n", "id": "mine", "tenantId": "other"}, {"id", "tenantId"}),
    ],
)
async def test_every_wrong_member_of_a_new_permission_is_named(
    template_api: httpx.AsyncClient, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await template_api.post(PATH, json=body)) == paths


async def test_a_patch_is_validated_like_a_new_permission(template: Template) -> None:
    permission = await template.created("organization-scopes", name=unique("p"), description="\U0001f600" * 256)
    path = f"{PATH}/{permission['id']}"
    wrong: dict[str, Any] = {"name": None, "description": "x" * 257, "version": 1}
    assert issues(await template.client.patch(path, json=wrong)) == {"name", "description", "version"}
    assert (await template.client.get(path)).json() == permission


async def test_exactly_one_of_many_concurrent_requests_gets_a_name(template: Template) -> None:
    contested = unique("contested")
    before = await template.revision()
    permissions = [await template.permission() for _ in range(5)]
    answers = await at_once(
        *(template.client.post(PATH, json={"name": contested}) for _ in range(10)),
        *(template.client.patch(f"{PATH}/{each['id']}", json={"name": contested}) for each in permissions),
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] in {200, 201}
    assert statuses[1:] == [422] * 14
    assert await template.revision() == before + 6
    listed = (await template.client.get(PATH, params={"q": contested})).json()
    assert [found["name"] for found in listed] == [contested]


async def test_permissions_that_swap_names_cause_no_server_error(template: Template) -> None:
    for _ in range(5):
        first, second = await template.permission(), await template.permission()
        answers = await asyncio.gather(
            template.client.patch(f"{PATH}/{first['id']}", json={"name": second["name"]}),
            template.client.patch(f"{PATH}/{second['id']}", json={"name": first["name"]}),
        )
        assert {answer.status_code for answer in answers} <= {200, 422}
