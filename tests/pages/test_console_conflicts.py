"""Two administrators edit the same thing in the console: the second one is told, sees both, and decides."""

from __future__ import annotations

import csv
import io
import re
import secrets
from html import unescape
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.administrator import CONSOLE, STALE, Administrator, heading, notices
from tests.support.running_stack import RunningStack

ORGANIZATIONS = f"{CONSOLE}/organizations"
USERS = f"{CONSOLE}/users"
TEMPLATE = f"{CONSOLE}/template"
OTHERS_NAME = "<b>Another name</b>"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture
def user(stack: RunningStack) -> str:
    return stack.management.users.create(username=f"person_{secrets.token_hex(5)}", name="Katherine Johnson").id


@pytest.fixture
def organization(stack: RunningStack) -> str:
    return stack.management.organizations.create(f"Engines {secrets.token_hex(4)}").id


def text(page: httpx.Response) -> str:
    return " ".join(unescape(re.sub("<[^>]+>", " ", page.text)).split())


def saved_now(page: httpx.Response) -> dict[str, str]:
    """Return what a page says is saved, by the fields that differ."""
    found = re.findall(r'<p class="saved" id="([^"]+)-saved">(.*?)</p>', page.text, re.DOTALL)
    return {name: " ".join(unescape(re.sub("<[^>]+>", "", each)).split()) for name, each in found}


@pytest.mark.parametrize("area", ["users", "organizations"])
def test_the_second_to_save_sees_both_values_and_decides(
    administrator: Administrator, user: str, organization: str, area: str
) -> None:
    operations: Any = getattr(administrator.stack.management, area)
    subject = user if area == "users" else organization
    page = administrator.opens(f"{CONSOLE}/{area}/{subject}/edit")
    operations.update(subject, name=OTHERS_NAME)

    refused = administrator.sends(page, name="Mine")
    assert refused.status_code == 412
    assert "This was changed after you had opened it" in text(refused)
    assert saved_now(refused) == {"name": f"Saved now: {OTHERS_NAME}"}
    assert OTHERS_NAME not in refused.text
    assert administrator.form(refused)[1]["name"] == ["Mine"]
    assert operations.get(subject).name == OTHERS_NAME

    assert 'aria-describedby="name-saved"' in refused.text
    assert "Replace what is saved" in refused.text
    saved = administrator.follows(administrator.sends(refused))
    assert notices(saved) == ["Saved Mine."]
    assert operations.get(subject).name == "Mine"


def test_what_only_another_administrator_has_changed_stays(administrator: Administrator, user: str) -> None:
    users = administrator.stack.management.users
    page = administrator.opens(f"{USERS}/{user}/edit")
    users.update(user, name=OTHERS_NAME, username=None)

    refused = administrator.sends(page, primaryEmail=f"{user}@example.com")
    shown = saved_now(refused)
    assert shown.pop("name") == "Changed meanwhile. It was: Katherine Johnson"
    assert re.fullmatch(r"Changed meanwhile\. It was: person_[0-9a-f]{10}", shown.pop("username"))
    assert shown == {}
    assert "Replace what is saved" not in refused.text

    assert administrator.sends(refused).status_code == 303
    changed = users.get(user)
    assert (changed.name, changed.username) == (OTHERS_NAME, None)
    assert changed.primary_email == f"{user}@example.com"


def test_a_change_that_no_field_shows_needs_no_decision(administrator: Administrator, user: str) -> None:
    users = administrator.stack.management.users
    page = administrator.opens(f"{USERS}/{user}/edit")
    users.update(user, custom_data={"plan": "gold"})
    refused = administrator.sends(page, name="Mine")
    assert (refused.status_code, saved_now(refused)) == (412, {})
    assert administrator.sends(refused).status_code == 303
    assert users.get(user).name == "Mine"


def test_the_third_change_is_not_overwritten_by_the_second_decision(administrator: Administrator, user: str) -> None:
    users = administrator.stack.management.users
    page = administrator.opens(f"{USERS}/{user}/edit")
    users.update(user, name="First")
    refused = administrator.sends(page, name="Mine")
    users.update(user, name=None)
    again = administrator.sends(refused)
    assert (again.status_code, saved_now(again)) == (412, {"name": "Saved now: nothing"})
    assert users.get(user).name is None


def test_a_change_during_an_expired_session_is_not_overwritten(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    administrator.session_expires()
    stack.management.users.update(user, name=OTHERS_NAME)
    page = administrator.follows(administrator.sends(page, name="Typed for a long time"))
    refused = administrator.sends(page)
    assert (refused.status_code, saved_now(refused)) == (412, {"name": f"Saved now: {OTHERS_NAME}"})
    assert administrator.form(refused)[1]["name"] == ["Typed for a long time"]


@pytest.mark.parametrize("etag", ["1", "*", 'W/"1"', '"“"', '"1", "2"', '"' + "x" * 200 + '"'])
def test_a_version_that_no_page_sends_changes_nothing(administrator: Administrator, user: str, etag: str) -> None:
    answer = administrator.sends(administrator.opens(f"{USERS}/{user}/edit"), name="Mallory", etag=etag)
    assert (answer.status_code, heading(answer)) == (403, "This page is out of date")
    assert administrator.stack.management.users.get(user).name == "Katherine Johnson"


def test_roles_of_a_member_that_were_changed_meanwhile_stay_beside_the_picked_ones(
    administrator: Administrator, organization: str, user: str
) -> None:
    management = administrator.stack.management
    mark = secrets.token_hex(4)
    clerk, editor = (management.organization_roles.create(f"{name} {mark}").id for name in ("clerk", "editor"))
    management.organizations.add_users(organization, [user])
    page = administrator.opens(f"{ORGANIZATIONS}/{organization}/users/{user}")
    management.organizations.assign_user_roles(organization, user, [clerk])

    refused = administrator.sends(page, role=[editor])
    assert refused.status_code == 412
    assert f"clerk {mark} changed meanwhile" in text(refused)
    assert text(refused).count("changed meanwhile") == 1
    assert set(administrator.form(refused)[1]["role"]) == {clerk, editor}
    assert [role.id for role in management.organizations.user_roles(organization, user)] == [clerk]

    assert administrator.sends(refused).status_code == 303
    assert {role.id for role in management.organizations.user_roles(organization, user)} == {clerk, editor}


@pytest.mark.heavy
def test_a_member_with_more_roles_than_have_a_version_keeps_all_that_are_picked(
    administrator: Administrator, organization: str, user: str
) -> None:
    management, mark = administrator.stack.management, secrets.token_hex(4)
    roles = [management.organization_roles.create(f"role {number} {mark}").id for number in range(101)]
    management.organizations.add_users(organization, [user])
    management.organizations.assign_user_roles(organization, user, roles)
    page = administrator.opens(f"{ORGANIZATIONS}/{organization}/users/{user}")
    values = administrator.form(page)[1]
    assert (values["etag"], set(values["role"])) == ([""], set(roles))
    assert administrator.sends(page, role=roles[1:]).status_code == 303
    assert {role.id for role in management.organizations.user_roles(organization, user)} == set(roles[1:])


def test_changes_of_the_template_are_put_beside_those_of_another_administrator(administrator: Administrator) -> None:
    management, mark, changes = administrator.stack.management, secrets.token_hex(4), f"{TEMPLATE}/changes"
    read, write = (management.organization_permissions.create(f"{name}:{mark}").id for name in ("read", "write"))
    role = management.organization_roles.create(f"editor {mark}", permission_ids=[read])
    page = administrator.opens(f"{TEMPLATE}?roles={mark}&permissions={mark}")
    management.organization_roles.replace_permissions(role.id, [write])

    values = administrator.form(page, changes)[1]
    assert values["cell"] == ["0.0"]
    preview = administrator.browser.post(changes, data={**values, "cell": []})
    assert preview.status_code == 200
    shown = text(preview)
    assert "The template, or the members that your changes affect, changed after you had opened this page." in shown
    assert f"Granted meanwhile editor {mark} : write:{mark}" in shown
    assert f"Revoked meanwhile editor {mark} : read:{mark}" in shown
    assert f"Already so, or no longer there editor {mark} : read:{mark}" in shown
    assert "Roles that grant less" not in shown

    preview = administrator.browser.post(changes, data={**values, "cell": ["0.0", "0.1"]})
    assert f"Already so, or no longer there editor {mark} : write:{mark}" in text(preview)


def test_the_template_is_saved_only_as_the_preview_showed_it(administrator: Administrator) -> None:
    management, mark, changes = administrator.stack.management, secrets.token_hex(4), f"{TEMPLATE}/changes"
    read = management.organization_permissions.create(f"read:{mark}").id
    role = management.organization_roles.create(f"editor {mark}")
    page = administrator.opens(f"{TEMPLATE}?roles={mark}&permissions={mark}")
    preview = administrator.browser.post(changes, data={**administrator.form(page, changes)[1], "cell": ["0.0"]})
    other = management.organization_roles.create(f"other {mark}", permission_ids=[read])

    refused = administrator.sends(preview, changes)
    assert refused.status_code == 412
    assert "The template, or the members that your changes affect, changed" in text(refused)
    assert f"Roles that grant more editor {mark} : read:{mark}" in text(refused)
    assert list(management.organization_roles.permissions(role.id)) == []

    saved = administrator.follows(administrator.sends(refused, changes))
    assert notices(saved) == [f"Saved the organization template. {STALE} Undo"]
    for each in (role, other):
        assert [permission.id for permission in management.organization_roles.permissions(each.id)] == [read]


@pytest.mark.heavy
def test_the_template_is_saved_only_if_it_affects_those_whom_the_preview_named(administrator: Administrator) -> None:
    management, mark, changes = administrator.stack.management, secrets.token_hex(4), f"{TEMPLATE}/changes"
    read = management.organization_permissions.create(f"read:{mark}").id
    role = management.organization_roles.create(f"editor {mark}", permission_ids=[read])
    organization = management.organizations.create(f"Engines {mark}")
    page = administrator.opens(f"{TEMPLATE}?roles={mark}&permissions={mark}")
    preview = administrator.browser.post(changes, data={**administrator.form(page, changes)[1], "cell": []})
    assert "No member gains or loses a permission." in text(preview)
    management.organizations.add_users(organization.id, [administrator.user_id])
    management.organizations.assign_user_roles(organization.id, administrator.user_id, [role.id])

    refused = administrator.sends(preview, changes)
    assert refused.status_code == 412
    assert f"1 member in 1 organization loses read:{mark}" in text(refused)
    assert [each.id for each in management.organization_roles.permissions(role.id)] == [read]
    for shown in ([], ["x"], administrator.form(refused, changes)[1]["shown"] * 2):
        assert administrator.sends(refused, changes, shown=shown).status_code == 403
    other = management.users.create(name=f"=Other {mark}").id
    management.organizations.replace_users(organization.id, [other])
    management.organizations.assign_user_roles(organization.id, other, [role.id])
    refused = administrator.sends(refused, changes)  # as many members, but another one
    assert refused.status_code == 412
    assert f"=Other {mark} Engines {mark} read:{mark}" in text(refused)
    file = administrator.sends(refused, changes, step=["save", "members"])
    assert (file.headers["Content-Type"], file.headers["Content-Disposition"]) == (
        "text/csv; charset=utf-8",
        'attachment; filename="affected-members.csv"',
    )
    rows = list(csv.reader(io.StringIO(file.text, newline="")))[1:]
    assert rows == [[f"Engines {mark}", organization.id, "user", f"'=Other {mark}", other, "loses", f"read:{mark}", ""]]
    assert administrator.sends(refused, changes).status_code == 303
    assert list(management.organization_roles.permissions(role.id)) == []


def test_only_the_cells_that_differ_are_sent_where_scripts_run(administrator: Administrator) -> None:
    management, mark, changes = administrator.stack.management, secrets.token_hex(4), f"{TEMPLATE}/changes"
    read, write = (management.organization_permissions.create(f"{name}:{mark}").id for name in ("read", "write"))
    management.organization_roles.create(f"clerk {mark}", permission_ids=[read])
    management.organization_roles.create(f"editor {mark}", permission_ids=[read, write])
    page = administrator.opens(f"{TEMPLATE}?roles={mark}&permissions={mark}")
    values = administrator.form(page, changes)[1]
    assert values["was"] == ["0.0 1.0 1.1"]
    del values["cell"]
    preview = text(administrator.browser.post(changes, data={**values, "differs": "0.1 1.0"}))
    assert f"Roles that grant more clerk {mark} : write:{mark}" in preview
    assert f"Roles that grant less editor {mark} : read:{mark} Whom it affects" in preview
    assert "Nothing." in text(administrator.browser.post(changes, data={**values, "differs": ""}))
    for differs in ("x", "0.2", "0.0.0", "-1.0"):
        assert administrator.browser.post(changes, data={**values, "differs": differs}).status_code == 403
