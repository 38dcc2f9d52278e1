"""Roles and permissions of the organization template in the console: made, renamed, deleted, and as a file."""

from __future__ import annotations

import json
import re
import secrets
from html import unescape
from typing import Any

import httpx2 as httpx
import pytest
from markupsafe import escape

from tests.support.administrator import CONSOLE, STALE, Administrator, errors, heading, notices
from tests.support.organization_template import OrganizationTemplate
from tests.support.running_stack import RunningStack

TEMPLATE = f"{CONSOLE}/template"
HTML = "<i>x</i>\"'&amp; عبد"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


@pytest.fixture(scope="module")
def reader(stack: RunningStack) -> Administrator:
    return Administrator(stack, "read", name="Reader")


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def stored(stack: RunningStack, kind: str, name: str) -> Any:
    operations = stack.management.organization_roles if kind == "roles" else stack.management.organization_permissions
    return next((each for each in operations.list() if each.name == name), None)


@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [("roles", f"{HTML} role", {"type": "MachineToMachine"}), ("permissions", "read:<orders>", {})],
)
def test_one_is_created_changed_and_deleted(
    stack: RunningStack, administrator: Administrator, kind: str, name: str, more: dict[str, str]
) -> None:
    name = f"{name}{secrets.token_hex(4)}"
    new = administrator.opens(f"{TEMPLATE}/{kind}/new")
    page = administrator.follows(administrator.sends(new, name=name, description=HTML, **more))
    assert notices(page) == [f"Created {name}."]
    assert HTML not in page.text
    found = stored(stack, kind, name)
    assert (found.description, getattr(found, "type", None)) == (HTML, more.get("type"))
    twice = administrator.sends(new, name=name, **more)
    assert (twice.status_code, list(errors(twice))) == (422, ["name"])
    empty = administrator.sends(new, name="", **more)
    assert (empty.status_code in {400, 422}, list(errors(empty))) == (True, ["name"])

    here = f"{TEMPLATE}/{kind}/{found.id}"
    assert heading(administrator.opens(here)) == f"<bdi>{name}</bdi>"
    assert administrator.sends(administrator.opens(here), name=f"{name}2", description="").status_code == 303
    assert stored(stack, kind, f"{name}2").description is None

    deletion = administrator.opens(f"{here}/delete")
    refused = administrator.sends(deletion, confirmation=name)
    assert (refused.status_code, list(errors(refused))) == (422, ["confirmation"])
    assert administrator.sends(deletion, confirmation=f"{name}2").status_code == 303
    assert stored(stack, kind, f"{name}2") is None
    assert administrator.opens(here).status_code == 404


def test_a_deletion_says_whom_it_affects(stack: RunningStack, administrator: Administrator) -> None:
    template = OrganizationTemplate(stack.management)
    name = f"pay:{secrets.token_hex(4)}"
    permission = template.permission(name)
    role = template.role(permission_ids=[permission])
    for _ in range(2):
        template.member(template.organization(), stack.management.users.create().id, role)
    for kind, entry_id in (("roles", role), ("permissions", permission)):
        page = administrator.opens(f"{TEMPLATE}/{kind}/{entry_id}/delete")
        assert f"2 members in 2 organizations lose {name}" in text(page)


@pytest.mark.heavy
def test_the_file_is_downloaded_compared_and_applied(stack: RunningStack, administrator: Administrator) -> None:
    exported = administrator.opens(f"{TEMPLATE}/export")
    assert exported.headers["Content-Disposition"] == 'attachment; filename="organization-template.json"'
    document = json.loads(exported.text)
    page = administrator.opens(f"{TEMPLATE}/file")
    same = administrator.sends(page, document=exported.text)
    assert "The file is the same as the template." in text(same)
    assert "Replace the template" not in same.text

    name = f"made:{secrets.token_hex(4)}"
    document["permissions"].append({"name": name, "description": "<b>new</b>"})
    document["roles"].append({"name": f"Role {name}", "type": "User", "permissions": [name]})
    compared = administrator.sends(page, document=json.dumps(document))
    assert compared.status_code == 200
    assert f"New: {name}" in text(compared)
    assert stored(stack, "permissions", name) is None
    applied = administrator.follows(administrator.sends(compared))
    assert notices(applied) == [f"Replaced the organization template. {STALE} Undo"]
    assert [each.name for each in stored(stack, "roles", f"Role {name}").scopes] == [name]

    document["roles"] = [each for each in document["roles"] if each["name"] != f"Role {name}"]
    document["permissions"][-1]["description"] = "changed"
    compared = administrator.sends(page, document=json.dumps(document))
    assert f"Deleted: Role {name}" in text(compared)
    assert "Description: <b>new</b> → changed" in text(compared)
    stack.management.organization_permissions.create(f"meanwhile:{secrets.token_hex(4)}")
    overtaken = administrator.sends(compared)
    assert overtaken.status_code == 412
    assert "nothing has been saved yet" in text(overtaken)
    assert "Deleted: meanwhile:" in text(overtaken)
    assert stored(stack, "roles", f"Role {name}") is not None
    assert administrator.sends(overtaken).status_code == 303
    assert stored(stack, "roles", f"Role {name}") is None


@pytest.mark.heavy
def test_a_file_that_was_applied_is_taken_back(stack: RunningStack, administrator: Administrator) -> None:
    name = f"made:{secrets.token_hex(4)}"
    template = OrganizationTemplate(stack.management)
    role = template.role(permission_ids=[template.permission(name)])
    role_name = stack.management.organization_roles.get(role).name
    document = json.loads(administrator.opens(f"{TEMPLATE}/export").text)
    document["roles"] = [each for each in document["roles"] if each["name"] != role_name]
    compared = administrator.sends(administrator.opens(f"{TEMPLATE}/file"), document=json.dumps(document))
    assert "Members that hold a deleted role lose it." in text(compared)
    user = stack.management.users.create().id
    template.member(template.organization(), user, role)

    refused = administrator.sends(compared)
    assert refused.status_code == 412
    assert f"1 member in 1 organization loses {name}" in text(refused)
    assert stored(stack, "roles", role_name) is not None
    page = administrator.follows(administrator.sends(refused))
    assert stored(stack, "roles", role_name) is None

    undo = f"{TEMPLATE}/file/undo"
    assert f'href="{undo}"' in page.text
    preview = administrator.opens(undo)
    assert f"New: {role_name}" in text(preview)
    assert "No member holds a new role" in text(preview)
    assert stored(stack, "roles", role_name) is None
    page = administrator.follows(administrator.sends(preview, f"{TEMPLATE}/file"))
    assert notices(page) == [f"Replaced the organization template. {STALE} Undo"]
    assert [each.name for each in stored(stack, "roles", role_name).scopes] == [name]
    assert f"Deleted: {role_name}" in text(administrator.opens(undo))


def test_what_was_not_applied_here_is_not_taken_back(stack: RunningStack, reader: Administrator) -> None:
    assert Administrator(stack, "all").opens(f"{TEMPLATE}/file/undo").status_code == 404
    assert reader.opens(f"{TEMPLATE}/file/undo").status_code == 403


@pytest.mark.parametrize(
    ("document", "status", "field"),
    [
        ("", 422, "document"),
        ("[]", 422, "document"),
        ('{"a":' + "[" * 100_000, 422, "document"),
        ('{"permissions": [', 422, "document"),
        ("{}", 400, None),
        ('{"permissions": [], "roles": [{"name": "x", "permissions": ["unknown"]}]}', 422, None),
        ('{"permissions": [{"name": "a"}, {"name": "a"}], "roles": []}', 400, None),
    ],
)
def test_a_file_that_is_no_template_changes_nothing(
    stack: RunningStack, administrator: Administrator, document: str, status: int, field: str | None
) -> None:
    before = stack.management.organization_template.get()
    refused = administrator.sends(administrator.opens(f"{TEMPLATE}/file"), document=document)
    assert refused.status_code == status
    assert list(errors(refused)) == ([field] if field else [])
    assert field or 'class="problem"' in refused.text
    assert document in unescape(refused.text)
    assert stack.management.organization_template.get() == before


def test_who_only_reads_sees_everything_and_no_form(stack: RunningStack, reader: Administrator) -> None:
    name = f"read:{secrets.token_hex(4)}"
    permission = stack.management.organization_permissions.create(name)
    page = reader.opens(f"{TEMPLATE}/permissions/{permission.id}")
    assert name in page.text
    assert '<button type="submit">' not in page.text
    assert "/new" not in reader.opens(f"{TEMPLATE}/permissions").text
    assert reader.opens(f"{TEMPLATE}/export").json()["permissions"]
    assert 'name="document"' not in reader.opens(f"{TEMPLATE}/file").text
    for path in ("permissions/new", f"permissions/{permission.id}/delete"):
        assert reader.opens(f"{TEMPLATE}/{path}").status_code == 403


def test_what_is_neither_a_role_nor_a_permission_is_not_found(administrator: Administrator) -> None:
    for path in ("other", "other/new", "roles/unknown", "permissions/unknown/delete"):
        assert administrator.opens(f"{TEMPLATE}/{path}").status_code == 404


@pytest.mark.heavy
def test_who_may_change_only_the_template_sees_how_many_members_a_change_affects_but_not_which(
    stack: RunningStack,
) -> None:
    template, mark = OrganizationTemplate(stack.management), secrets.token_hex(4)
    stack.management.organization_permissions.create(f"pay:{mark}")
    role = template.role(permission_ids=[template.permission(f"read:{mark}")])
    template.member(template.organization(), stack.management.users.create(name=f"Ada {mark}").id, role)
    own = Administrator(stack, "template")
    page = own.opens(f"{TEMPLATE}?permissions={mark}&roles={stack.management.organization_roles.get(role).name}")
    assert "API permissions that no role grants Not shown: none" in text(page)
    changes = f"{TEMPLATE}/changes"
    preview = own.browser.post(changes, data={**own.form(page, changes)[1], "cell": []})
    assert f"1 member in 1 organization loses read:{mark}" in text(preview)
    assert "Who they are Not shown: none of your roles has the permission organizations:read of the" in text(preview)
    assert (f"Ada {mark}" in preview.text, 'value="members"' in preview.text) == (False, False)
    assert own.sends(preview, changes, step=["save", "members"]).status_code == 403
    assert own.browser.get(f"{TEMPLATE}/roles/{role}/delete/export").status_code == 403
    assert own.sends(preview, changes).status_code == 303


def test_the_matrix_describes_roles_and_permissions_where_they_are_focused(
    stack: RunningStack, administrator: Administrator
) -> None:
    mark = secrets.token_hex(4)
    stack.management.organization_permissions.create(f"pay:{mark}", HTML)
    stack.management.organization_roles.create(f"clerk {mark}", "x" * 1000)
    stack.management.organization_roles.create(f"plain {mark}")
    page = administrator.opens(f"{TEMPLATE}?permissions={mark}&roles={mark}").text
    described = dict(re.findall(r'role="tooltip" id="([^"]+)-text">(.*?)</span>', page))
    assert described == {"r0": f"<bdi>{'x' * 137}...</bdi>", "p0": f"<bdi>{escape(HTML)}</bdi>"}
    assert re.findall(r'<a href="[^"]+" aria-describedby="([^"]+)-text" id="([^"]+)">', page) == [
        ("r0", "r0"),
        ("p0", "p0"),
    ]
