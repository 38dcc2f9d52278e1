"""``/api/organization-template``: the whole template as one document, in a tenant of its own."""

import json
from typing import Any

import pytest

from provision import ServerAddresses
from tests.support.issuer import Issuer
from tests.support.management_api import Management, refusal
from tests.support.template_api import RequestedFanOuts, Template, revision
from tests.support.template_documents import (
    EMPTY,
    NOTHING,
    PATH,
    UNCHANGED,
    UNKNOWN,
    document,
    permission,
    permission_ids,
    put,
    role,
    role_ids,
    scopes,
    send,
    shown,
)


async def test_a_template_is_shown_sorted_by_name_with_what_roles_grant(template: Template, resource: Any) -> None:
    assert await shown(template) == EMPTY
    by_name = {name: (await template.permission(name))["id"] for name in ("b", "c", "a")}
    scope_ids = {scope["name"]: scope["id"] for scope in resource["scopes"]}
    await template.client.patch(f"/api/organization-scopes/{by_name['b']}", json={"description": "Do b"})
    await template.role(
        name="z",
        type="MachineToMachine",
        description="Last",
        organizationScopeIds=[by_name["c"], by_name["a"]],
        resourceScopeIds=[scope_ids["orders:write"], scope_ids["orders:read"]],
    )
    await template.role(name="y")
    answer = await template.client.get(PATH)
    assert answer.json() == {
        "permissions": [permission("a"), permission("b", "Do b"), permission("c")],
        "roles": [
            role("y"),
            role(
                "z",
                "a",
                "c",
                description="Last",
                type="MachineToMachine",
                scopes=scopes(resource, "orders:read", "orders:write"),
            ),
        ],
    }
    again = await template.client.get(PATH, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    await template.permission("d")
    changed = await template.client.get(PATH, headers={"If-None-Match": answer.headers["ETag"]})
    assert (changed.status_code, changed.headers["ETag"] != answer.headers["ETag"]) == (200, True)


async def test_a_role_is_known_by_its_name_in_any_form(template: Template) -> None:
    await put(template, document("a", role("Zoë M", "a"), role("one"), role("two"), role("three")))
    ids = await role_ids(template)
    earlier = {"one": "Ko\u0308ln", "two": "Köln", "three": "x\u200b"}  # the first and the last from an earlier release
    for name, stored in earlier.items():
        await template.database.execute("UPDATE roles SET name = $1 WHERE id = $2", stored, ids[name])
    read = await shown(template)
    assert await put(template, read) == UNCHANGED
    other = document("a", role("  Zoe\u0308\u00a0M", "a"), *(role(name) for name in earlier.values()))
    assert await put(template, other) == UNCHANGED
    stored_ids = {name: ids[before] for before, name in earlier.items()} | {"Zoë M": ids["Zoë M"]}
    assert await role_ids(template) == stored_ids
    report = await put(template, document("a", role(" Zoë M"), role("Köln "), role("\tNew\n")))
    assert report["roles"]["created"] == ["New"]
    assert report["roles"]["deleted"] == ["Ko\u0308ln", "x\u200b"]
    assert [each["name"] for each in report["roles"]["updated"]] == ["Zoë M"]


async def test_a_document_that_was_read_can_be_put_back_and_changes_nothing(
    template: Template, resource: Any, fan_outs: RequestedFanOuts
) -> None:
    wanted = {
        "permissions": [permission("b", "Do b"), permission("a")],
        "roles": [
            role("z", "b", "a", scopes=scopes(resource, "orders:write", "orders:read"), description="Last"),
            role("y", type="MachineToMachine"),
        ],
    }
    report = await put(template, wanted)
    assert report == {
        "permissions": {**NOTHING, "created": ["a", "b"]},
        "roles": {**NOTHING, "created": ["y", "z"]},
        "members": [],
    }
    found, before = await shown(template), await template.revision()
    assert found == {
        "permissions": [permission("a"), permission("b", "Do b")],
        "roles": [
            role("y", type="MachineToMachine"),
            role("z", "a", "b", scopes=scopes(resource, "orders:read", "orders:write"), description="Last"),
        ],
    }
    for each in (wanted, found):
        for dry_run in (False, True):
            answer = await send(template, each, dry_run=dry_run)
            assert (answer.json(), revision(answer)) == (UNCHANGED, before)
    assert (await template.revision(), await shown(template)) == (before, found)
    assert await fan_outs.new() == set()  # no role has holders yet


async def test_omitted_members_have_the_defaults_of_a_new_role(template: Template) -> None:
    await put(template, {"permissions": [{"name": "a"}], "roles": [{"name": "r"}]})
    assert await shown(template) == {"permissions": [permission("a")], "roles": [role("r")]}


async def test_every_changed_aggregate_gets_its_event_and_a_version_and_roles_a_fan_out(
    template: Template, resource: Any, fan_outs: RequestedFanOuts
) -> None:
    await put(
        template,
        {
            "permissions": [permission(name) for name in ("described", "gone", "kept")],
            "roles": [
                role("described", "kept"),
                role("gone", "kept"),
                role("loses", "gone", "kept"),
                role("both", "gone"),
                role("grants"),
                role("same", "kept"),
                role("typed", type="User"),
            ],
        },
    )
    permissions, roles = await permission_ids(template), await role_ids(template)
    await fan_outs.new()
    before = await template.revision()
    wanted = {
        "permissions": [permission("described", "d"), permission("kept"), permission("new", "n")],
        "roles": [
            role("described", "kept", description="d"),
            role("loses", "kept"),
            role("both", "new"),
            role("grants", "kept", scopes=scopes(resource, "orders:read")),
            role("same", "kept"),
            role("typed", type="MachineToMachine"),
            role("new", "new"),
        ],
    }
    report = await put(template, wanted, dry_run=True)
    assert await template.revision() == before
    answer = await send(template, wanted)
    described = {"before": None, "after": "d"}
    assert answer.json() == report == {
        "permissions": {
            "created": ["new"],
            "updated": [{"name": "described", "description": described}],
            "deleted": ["gone"],
        },
        "roles": {
            "created": ["new"],
            "updated": [
                {"name": "both", "added": [{"name": "new"}], "removed": [{"name": "gone"}]},
                {"name": "described", "description": described, "added": [], "removed": []},
                {
                    "name": "grants",
                    "added": [{"name": "kept"}, {"name": "orders:read", "resource": resource["indicator"]}],
                    "removed": [],
                },
                {"name": "loses", "added": [], "removed": [{"name": "gone"}]},
                {"name": "typed", "type": {"before": "User", "after": "MachineToMachine"}, "added": [], "removed": []},
            ],
            "deleted": ["gone"],
        },
        "members": [],
    }  # fmt: skip
    assert (revision(answer), await template.revision()) == (before + 10, before + 10)
    now, roles_now = await permission_ids(template), await role_ids(template)
    assert {name: now[name] for name in ("described", "kept")} == {
        name: permissions[name] for name in ("described", "kept")
    }
    assert roles_now == {**{name: each for name, each in roles.items() if name != "gone"}, "new": roles_now["new"]}
    assert await fan_outs.new() == {
        ("role-deleted", roles["gone"]),
        ("permission-deleted", roles["loses"]),
        ("role-changed", roles["both"]),
        ("role-changed", roles["grants"]),
    }
    created = {"id": now["new"], "name": "new", "description": "n"}
    assert await said(template, "permission", now["new"]) == ("permission.created", created)
    assert await said(template, "permission", now["described"]) == (
        "permission.updated",
        {"id": now["described"], "name": "described", "description": "d"},
    )
    gone = permissions["gone"]
    assert await said(template, "permission", gone) == ("permission.deleted", {"id": gone, "deleted": True})
    assert await said(template, "role", roles["gone"]) == ("role.deleted", {"id": roles["gone"], "deleted": True})
    new = {"id": roles_now["new"], "name": "new", "type": "User", "permissionIds": [now["new"]]}
    assert await said(template, "role", roles_now["new"]) == ("role.created", new)
    granted = {"permissionIds": [now["kept"]], "scopeIds": [resource["scopes"][1]["id"]]}
    expected: dict[str, dict[str, Any]] = {
        "both": {"permissionIds": [now["new"]]},
        "described": {"permissionIds": [now["kept"]]},
        "grants": granted,
        "loses": {"permissionIds": [now["kept"]]},
        "typed": {"type": "MachineToMachine"},
    }
    for name, members in expected.items():
        state = {"id": roles[name], "name": name, "type": "User", **members}
        assert await said(template, "role", roles[name]) == ("role.updated", state)
        assert await template.version("roles", roles[name]) == 2
    assert await template.version("roles", roles["same"]) == 1
    assert await template.version("permissions", now["described"]) == 2
    assert await template.version("permissions", now["kept"]) == 1


async def said(template: Template, *subject: str) -> tuple[str, Any]:
    """Return type and content of the last event of an aggregate."""
    event = await template.event(*subject)
    assert event is not None
    return event.type, json.loads(bytes(event.data))


async def test_a_scope_that_was_just_created_is_found_without_a_header(template: Template) -> None:
    for _ in range(5):
        resource = await template.resource("read")
        wanted = document("", role("r", scopes=scopes(resource, "read")))
        await put(template, wanted)
        assert await shown(template) == wanted


@pytest.mark.heavy
async def test_the_template_of_another_tenant_is_left_alone(
    template: Template, servers: ServerAddresses, issuer: Issuer
) -> None:
    async with Management(servers, issuer) as management, Template(management) as other:
        wanted = document("ab", role("r", "a"))
        await put(other, wanted)
        await put(template, document("bc", role("r", "b"), role("s")))
        await put(template, EMPTY)
        assert await shown(other) == wanted
        foreign = await other.resource("read")
        await other.caught_up()
        answer = await send(template, document("", role("r", scopes=scopes(foreign, "read"))))
        assert refusal(answer) == UNKNOWN
