"""The console as a browser without scripts sees it: signing in, rights, forms, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from html import escape
from urllib.parse import urlencode, urlsplit

import asyncpg
import pytest

from tests.support.administrator import CONSOLE, ENDED, STALE, Administrator, errors, heading, notices
from tests.support.at_a_browser import PASSWORD, Form
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

ORGANIZATIONS = f"{CONSOLE}/organizations"
USERS = f"{CONSOLE}/users"
TEMPLATE = f"{CONSOLE}/template"
NAMES = ["<script>alert(1)</script>", "عبد الله", "quotes \" and ' and &amp;", "Ada \U0001f642", "x" * 128]


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all")


@pytest.fixture
def user(stack: RunningStack) -> str:
    return stack.management.users.create(username=f"person_{secrets.token_hex(5)}", name="Katherine Johnson").id


def test_the_seeded_administrator_signs_in(stack: RunningStack) -> None:
    seeded = Administrator(stack)
    seeded.username = stack.credentials.administrator.username
    page = seeded.browser.get(CONSOLE)
    assert page.status_code == 303
    sign_in = seeded.browser.get(seeded.browser.get(page.headers["Location"]).headers["Location"])
    assert 'name="password"' in sign_in.text


def test_a_page_is_shown_after_the_sign_in(administrator: Administrator) -> None:
    page = administrator.opens(f"{USERS}?search=nobody-at-all")
    assert (page.status_code, str(page.url.query, "ascii"), heading(page)) == (200, "search=nobody-at-all", "Users")


def test_pages_load_nothing_foreign_and_nothing_inline(administrator: Administrator) -> None:
    page = administrator.opens()
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["Cache-Control"] == "no-store"
    assert re.findall(r"<script(?![^>]*src=)|\son[a-z]+=|\sstyle=", page.text) == []


def test_pages_have_an_icon_that_is_cached(stack: RunningStack, administrator: Administrator) -> None:
    """Otherwise browsers ask for ``/favicon.ico``, which does not exist."""
    someone = Administrator(stack)
    signing_in = someone.browser.get(CONSOLE)
    while signing_in.has_redirect_location:
        signing_in = someone.browser.get(signing_in.headers["Location"])
    for page in (administrator.opens(), administrator.opens(f"{CONSOLE}/invitation"), signing_in):
        (address,) = re.findall('<link rel="icon" href="([^"]+)" type="image/svg\\+xml">', page.text)
        assert "img-src 'self'" in page.headers["Content-Security-Policy"].split("; ")
        icon = someone.browser.get(address)
        assert (icon.status_code, icon.headers["Content-Type"]) == (200, "image/svg+xml")
        assert icon.headers["Cache-Control"] == "public, max-age=86400"
        assert icon.content.startswith(b"<svg ")


def test_the_browser_holds_no_token(administrator: Administrator) -> None:
    administrator.opens()
    kept = [value for name, value in administrator.browser.cookies.items() if name == "identity-console"]
    assert len(kept) == 1
    assert "eyJ" not in kept[0]


def test_a_planted_session_is_not_continued(stack: RunningStack) -> None:
    """Session fixation: signing in changes the cookie."""
    administrator = Administrator(stack, "all")
    administrator.browser.get(CONSOLE)
    planted = administrator.browser.cookies["identity-console"]
    administrator.opens()
    assert administrator.browser.cookies["identity-console"] != planted
    administrator.browser.cookies.set("identity-console", planted)
    assert administrator.browser.get(CONSOLE).status_code == 303


@pytest.mark.parametrize("cookie", ["", "x", "x.y", ".", "a:b.c", "é" * 40])
def test_an_unknown_cookie_is_not_a_session(stack: RunningStack, cookie: str) -> None:
    answer = stack.http.get(CONSOLE, headers={"Cookie": f"identity-console={cookie}".encode()})
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(f"{stack.base_url}/oidc/auth?")


def test_who_has_no_role_is_told_what_is_missing(stack: RunningStack) -> None:
    page = Administrator(stack).opens()
    assert (page.status_code, heading(page)) == (403, "You may not do this")
    assert "<code>all</code>" in page.text


@pytest.mark.heavy
def test_who_may_only_read_sees_everything_and_changes_nothing(
    stack: RunningStack, organization: str, user: str
) -> None:
    reader = Administrator(stack, "read")
    stack.management.organizations.add_users(organization, [user])
    seen = (
        CONSOLE,
        USERS,
        f"{USERS}/invitations",
        f"{USERS}/{user}",
        f"{USERS}/{user}/permissions",
        f"{USERS}/{user}/roles",
        ORGANIZATIONS,
        f"{ORGANIZATIONS}/{organization}",
        f"{ORGANIZATIONS}/{organization}/users",
        f"{ORGANIZATIONS}/{organization}/users/{user}",
        TEMPLATE,
    )
    for path in seen:
        page = reader.opens(path)
        assert page.status_code == 200, path
        assert "read-only" in page.text
        buttons = re.findall(r'<button [^>]*type="submit"[^>]*>(.*?)</button>', page.text)
        assert set(buttons) <= {"Sign out", "Search", "Filter"}, path
        changing = r'href="[^"]*/(?:new|add|edit|invite|invitation|password|suspension|delete|remove)"'
        assert re.findall(changing, page.text) == [], path

    for path in (
        f"{USERS}/new",
        f"{USERS}/{user}/edit",
        f"{USERS}/{user}/delete",
        f"{ORGANIZATIONS}/{organization}/users/add",
    ):
        page = reader.opens(path)
        assert (page.status_code, heading(page)) == (403, "You may not do this"), path

    sent = reader.form(reader.opens(), f"{CONSOLE}/sign-out")[1]
    for path in (
        f"{USERS}/invite",
        f"{USERS}/{user}/edit",
        f"{USERS}/{user}/delete",
        f"{USERS}/{user}/sign-in-attempts",
        f"{USERS}/{user}/verification-email",
        f"{TEMPLATE}/changes",
    ):
        answer = reader.browser.post(path, data={**sent, "name": "Mallory", "confirmation": "Katherine Johnson"})
        assert (answer.status_code, heading(answer)) == (403, "You may not do this"), path
    assert "<code><bdi>template</bdi></code>" in answer.text
    assert stack.management.users.get(user).name == "Katherine Johnson"
    assert reader.follows(reader.sends(reader.opens(), f"{CONSOLE}/sign-out")).status_code == 200


@pytest.mark.parametrize("change", [{"csrf_token": ""}, {"csrf_token": "0" * 64}])
def test_a_forged_form_does_nothing(administrator: Administrator, user: str, change: dict[str, str]) -> None:
    page = administrator.opens(f"{USERS}/{user}/edit")
    answer = administrator.sends(page, name="Mallory", **change)
    assert (answer.status_code, heading(answer)) == (403, "This page is out of date")
    assert administrator.stack.management.users.get(user).name == "Katherine Johnson"


def test_a_form_of_another_site_does_nothing(administrator: Administrator, user: str) -> None:
    page = administrator.opens(f"{USERS}/{user}/edit")
    target, values = administrator.form(page)
    answer = administrator.browser.post(target, data=values, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("body", [b"", b"a=b", b"\xff=1", b"csrf_token=x&" * 200_000])
def test_a_broken_form_does_nothing(administrator: Administrator, user: str, body: bytes) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    administrator.opens()
    assert administrator.browser.post(f"{USERS}/{user}/edit", content=body, headers=headers).status_code == 403
    json_body = administrator.browser.post(f"{USERS}/{user}/edit", json={"name": "x"})
    assert json_body.status_code == 403


def test_a_user_is_created_changed_and_deleted(administrator: Administrator) -> None:
    management = administrator.stack.management
    name = f"Mary {secrets.token_hex(4)}"
    new = {"name": name, "username": "", "primaryEmail": "", "externalId": f"okta|{name}"}
    created = administrator.sends(administrator.opens(f"{USERS}/new"), **new)
    page = administrator.follows(created)
    assert (heading(page), notices(page)) == (f"<bdi>{name}</bdi>", [f"Created {name}."])
    user_id = page.url.path.rpartition("/")[2]
    assert f"okta|{name}" in page.text
    assert f"{USERS}/{user_id}" in administrator.opens(f"{USERS}?{urlencode({'search': f'okta|{name}'})}").text
    refused = administrator.sends(administrator.opens(f"{USERS}/new"), **new)
    assert (refused.status_code, errors(refused)) == (422, {"externalId": "The external id is in use."})

    page = administrator.opens(f"{USERS}/{user_id}/edit")
    page = administrator.follows(administrator.sends(page, primaryEmail=f"{user_id}@example.com", externalId="okta| 1"))
    assert notices(page) == [f"Saved {name}."]
    user = management.users.get(user_id)
    assert (user.primary_email, user.external_id) == (f"{user_id}@example.com", "okta| 1")
    administrator.sends(administrator.opens(f"{USERS}/{user_id}/edit"), externalId="")
    assert management.users.get(user_id).external_id is None

    page = administrator.opens(f"{USERS}/{user_id}/delete")
    refused = administrator.sends(page, confirmation="somebody else")
    assert (refused.status_code, errors(refused)) == (422, {"confirmation": "This is not the name."})
    page = administrator.follows(administrator.sends(page, confirmation=name))
    assert notices(page) == [f"Deleted {name}. {ENDED}"]
    assert administrator.opens(f"{USERS}/{user_id}").status_code == 404


def test_what_the_api_refuses_stands_beside_its_field(administrator: Administrator, user: str) -> None:
    taken = administrator.stack.management.users.get(user).username or ""
    page = administrator.opens(f"{USERS}/new")
    refused = administrator.sends(page, name="Somebody", username=taken, primaryEmail="")
    assert (refused.status_code, errors(refused)) == (422, {"username": "The username is in use."})
    assert 'value="Somebody"' in refused.text
    refused = administrator.sends(page, name="Somebody", username="", primaryEmail="no address")
    assert (refused.status_code, list(errors(refused))) == (400, ["primaryEmail"])


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(administrator: Administrator, name: str) -> None:
    user_id = administrator.stack.management.users.create(name=name).id
    page = administrator.opens(f"{USERS}/{user_id}/edit")
    assert administrator.form(page)[1]["name"] == [name]
    assert "<script>alert" not in page.text


def test_a_suspension_and_its_end(administrator: Administrator, user: str) -> None:
    users = administrator.stack.management.users
    suspension = f"{USERS}/{user}/suspension"
    page = administrator.follows(administrator.sends(administrator.opens(suspension)))
    assert users.get(user).is_suspended
    assert notices(page) == [f"Suspended Katherine Johnson. {ENDED}"]
    administrator.sends(administrator.opens(suspension))
    assert not users.get(user).is_suspended


def test_roles_are_added_and_removed(administrator: Administrator, user: str) -> None:
    management = administrator.stack.management
    role = management.roles.create(f"role {secrets.token_hex(5)}", "", "User")
    page = administrator.opens(f"{USERS}/{user}/roles?search={role.name}")
    page = administrator.follows(administrator.sends(page, step="save", held=[role.id]))
    assert [each.id for each in management.users.roles(user)] == [role.id]
    assert notices(page) == [f"Changed the roles. {STALE}"]
    administrator.sends(administrator.opens(f"{USERS}/{user}/roles"), step="save", held=[])
    assert list(management.users.roles(user)) == []


def test_what_was_typed_survives_an_expired_session(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    administrator.session_expires()
    answer = administrator.sends(page, name="Typed for a long time")
    page = administrator.follows(answer)
    assert notices(page)[0].startswith("You had been signed out before this was sent.")
    assert administrator.form(page)[1]["name"] == ["Typed for a long time"]
    assert stack.management.users.get(user).name == "Katherine Johnson"
    administrator.sends(page)
    assert stack.management.users.get(user).name == "Typed for a long time"


def test_what_is_too_large_to_be_kept_during_a_sign_in_is_shown(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    administrator.session_expires()
    typed = "<Typed> for a long time. " * 400
    answer = administrator.sends(page, name=typed)
    assert (answer.status_code, heading(answer)) == (413, "You are not signed in")
    assert f"readonly>\n{escape(typed)}</textarea>" in answer.text
    assert "csrf_token" not in answer.text
    page = administrator.opens(f"{USERS}/{user}/edit")
    assert (notices(page), administrator.form(page)[1]["name"]) == ([], ["Katherine Johnson"])


def test_a_browser_without_a_sign_of_a_session_is_told_that_nothing_was_kept(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    administrator.browser.cookies.delete("identity-console")
    page = administrator.follows(administrator.sends(page, name="Typed for a long time"))
    assert notices(page)[0].startswith("You were not signed in when this was sent.")
    assert administrator.form(page)[1]["name"] == ["Katherine Johnson"]


def test_what_was_typed_is_shown_to_nobody_else(stack: RunningStack, user: str) -> None:
    administrator, other = Administrator(stack, "all"), Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    administrator.session_expires()
    answer = administrator.sends(page, name="Typed by another administrator")
    administrator.browser.cookies.delete("identity-session")
    administrator.username = other.username
    page = administrator.follows(answer)
    assert (page.url.path, notices(page)) == (
        CONSOLE,
        ["Another user was signed in here before. What that user had typed was not sent, and is not shown."],
    )
    page = administrator.opens(f"{USERS}/{user}/edit")
    assert administrator.form(page)[1]["name"] == ["Katherine Johnson"]


def test_a_password_is_not_kept_during_a_sign_in(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/password")
    administrator.session_expires()
    answer = administrator.sends(page, password="x" * 9000)
    assert answer.status_code == 303


def test_another_sites_form_is_not_put_into_a_page(stack: RunningStack, user: str) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens(f"{USERS}/{user}/edit")
    target, values = administrator.form(page)
    administrator.session_expires()
    evil = {"Origin": "https://evil.example"}
    answer = administrator.browser.post(target, data={**values, "name": "Mallory"}, headers=evil)
    assert "Mallory" not in administrator.follows(answer).text


def test_who_is_suspended_is_signed_out(stack: RunningStack) -> None:
    administrator = Administrator(stack, "all")
    administrator.opens()
    stack.management.users.suspend(administrator.user_id)
    eventually(lambda: administrator.browser.get(USERS).status_code == 303)


def test_who_must_sign_in_more_strongly_is_sent_to_sign_in(stack: RunningStack) -> None:
    """The console demands a second factor from the moment on at which its callback is answered."""
    administrator = Administrator(stack, "all")
    answer = administrator.browser.get(CONSOLE)
    while answer.url.path != f"{CONSOLE}/callback":
        if answer.has_redirect_location:
            answer = administrator.browser.get(answer.headers["Location"])
        else:
            form = Form(answer.text)
            values = {**form.values, "identifier": administrator.username, "password": PASSWORD}
            answer = administrator.browser.post(form.action, data=values)
    console = next(each for each in stack.management.applications.list() if each.name == "Console")
    known = {"resource": stack.credentials.demo.resource}
    try:
        stack.management.applications.update(console.id, custom_client_metadata={"minimumAcr": "mfa"})
        stack.exchange(stack.subject_token(stack.credentials.demo.users[1].id), **known)
        page = administrator.browser.get(answer.headers["Location"])
        assert urlsplit(page.headers["Location"]).path == "/oidc/auth"
    finally:
        stack.management.applications.update(console.id, custom_client_metadata={"minimumAcr": None})
        stack.exchange(stack.subject_token(stack.credentials.demo.users[1].id), **known)


def test_signing_out_ends_the_session_and_its_tokens(stack: RunningStack) -> None:
    administrator = Administrator(stack, "all")
    page = administrator.opens()
    cookie = administrator.browser.cookies["identity-console"]
    answer = administrator.sends(page, f"{CONSOLE}/sign-out")
    assert answer.headers["Location"].startswith(f"{stack.base_url}/oidc/session/end?")
    administrator.browser.cookies.set("identity-console", cookie)
    assert administrator.browser.get(CONSOLE).status_code == 303


@pytest.mark.heavy
def test_a_change_of_the_template_is_shown_before_it_is_saved(administrator: Administrator) -> None:
    management = administrator.stack.management
    mark = secrets.token_hex(4)
    permission = management.organization_permissions.create(f"read:{mark}")
    role = management.organization_roles.create(f"editor {mark}")
    management.organization_roles.assign_permissions(role.id, [permission.id])
    organization = management.organizations.create(f"Engines {mark}")
    management.organizations.add_users(organization.id, [administrator.user_id])
    management.organizations.assign_user_roles(organization.id, administrator.user_id, role_ids=[role.id])

    page = administrator.opens(f"{TEMPLATE}?roles={mark}&permissions={mark}")
    target, values = administrator.form(page, f"{TEMPLATE}/changes")
    assert values["cell"] == ["0.0"]
    preview = administrator.browser.post(target, data={**values, "cell": []})
    assert "1</strong> member in" in preview.text
    assert f"loses <code><bdi>read:{mark}</bdi></code>" in " ".join(preview.text.split())
    assert [each.id for each in management.organization_roles.permissions(role.id)] == [permission.id]

    saved = administrator.follows(administrator.sends(preview, f"{TEMPLATE}/changes"))
    assert notices(saved) == [f"Saved the organization template. {STALE} Undo"]
    assert list(management.organization_roles.permissions(role.id)) == []

    _, values = administrator.form(saved, f"{TEMPLATE}/changes")
    undo = {"csrf_token": values["csrf_token"][0], "undo": values["undo"][0], "step": "undo"}
    preview = administrator.browser.post(target, data=undo)
    assert f"gets <code><bdi>read:{mark}</bdi></code>" in " ".join(preview.text.split())
    assert list(management.organization_roles.permissions(role.id)) == []
    administrator.sends(preview, f"{TEMPLATE}/changes")
    assert [each.id for each in management.organization_roles.permissions(role.id)] == [permission.id]
    assert "Nothing." in administrator.browser.post(target, data=undo).text
    assert administrator.browser.post(target, data={**undo, "undo": "[]"}).status_code == 403


def test_a_search_leads_to_the_page_of_each_object(stack: RunningStack, administrator: Administrator) -> None:
    management, mark = stack.management, secrets.token_hex(5)
    name = f"{mark} <i>&amp;\u05e2"
    resource = management.resources.create(name, f"https://{mark}.example.com")
    permission = management.resources.create_scope(resource.id, f"read:{mark}")
    pages = {
        "users": management.users.create(name=name).id,
        "organizations": management.organizations.create(name).id,
        "applications": management.applications.create(name=name, type="SPA").id,
        "resources": resource.id,
        "roles": management.roles.create(name, "", "User").id,
        f"resources/{resource.id}/scopes": permission.id,
        "template/roles": management.organization_roles.create(name).id,
        "template/permissions": management.organization_permissions.create(f"{mark}:read").id,
    }
    addresses = [f"{CONSOLE}/{path}/{each}" for path, each in pages.items()]

    def found(by: Administrator, q: str) -> list[str]:
        page = by.opens(f"{CONSOLE}/search?q={q}")
        assert page.status_code == 200
        assert "<i>" not in page.text
        return re.findall(r'<a href="([^"]+)"><bdi>', page.text)

    def leads(object_id: str) -> str:
        return administrator.opens(f"{CONSOLE}/search?q={object_id}").url.path

    eventually(lambda: sorted(found(administrator, mark)) == sorted(addresses))
    for address in addresses:
        eventually(lambda address=address: leads(address.rpartition("/")[2]) == address)

    of_resource, of_permission = addresses[3], addresses[5]
    readable = [of_resource if each == of_permission else each for each in addresses]
    reader = Administrator(stack, "read")
    eventually(lambda: sorted(found(reader, mark)) == sorted(readable))
    narrow = Administrator(stack, "users:read")
    assert found(narrow, mark) == addresses[:1]
    assert 'id="organizations"' not in narrow.opens(f"{CONSOLE}/search?q={mark}").text


def test_a_search_says_what_it_does_not_show(stack: RunningStack, administrator: Administrator) -> None:
    search, mark = f"{CONSOLE}/search", secrets.token_hex(5)
    for number in range(11):
        stack.management.users.create(name=f"{mark} {number}")
        stack.management.resources.create_scope(
            stack.management.resources.create(f"API {number}", f"https://{mark}.example.com/{number}").id, mark
        )
    page = administrator.opens(f"{search}?q={mark}")
    assert len(re.findall('<a href="[^"]+"><bdi>', page.text)) == 30
    assert f'<a href="{USERS}?search={mark}">Show all</a>' in page.text
    assert page.text.count("There are more: type further words.") == 1
    eventually(lambda: "Nothing matches." in administrator.opens(f"{search}?q={secrets.token_hex(9)}").text)
    for text in ("", "..", "a/b", "%00"):
        assert administrator.opens(f"{search}?q={text}").status_code == 200
    assert "256" in administrator.opens(f"{search}?q={'x' * 500}").text


async def test_a_search_names_the_groups_that_did_not_answer(stack: RunningStack, administrator: Administrator) -> None:
    mark = secrets.token_hex(5)
    user = stack.management.users.create(name=mark).id
    template = await asyncpg.connect(stack.addresses.template_database_url.replace("+asyncpg", ""))
    async with template.transaction():
        await template.execute("LOCK TABLE organizations")
        page = await asyncio.to_thread(administrator.opens, f"{CONSOLE}/search?q={mark}")
    await template.close()
    told = " ".join(re.sub("<[^>]+>", "", page.text).split())
    assert "further results: Organizations, Organization roles, Organization permissions. Search again" in told
    assert f"{USERS}/{user}" in page.text


@pytest.fixture
def organization(stack: RunningStack) -> str:
    return stack.management.organizations.create(f"Engines {secrets.token_hex(4)}").id


@pytest.mark.parametrize(
    ("color", "fill"),
    [
        ({"primaryColor": "#5D34f2", "isDarkModeEnabled": True}, "#5D34f2"),
        ({"primaryColor": "#fff"}, "#fff"),
        ({"primaryColor": '#fff"/><script>'}, None),
        ({"primaryColor": "url(https://evil.example)"}, None),
        ({"primaryColor": 7}, None),
        ({"other": "#5d34f2"}, None),
    ],
)
def test_an_organization_is_marked_with_its_colour(
    administrator: Administrator, color: dict[str, object], fill: str | None
) -> None:
    name = f"Engines {secrets.token_hex(4)}"
    made = administrator.stack.management.organizations.create(name, color=color)
    for path in (f"{ORGANIZATIONS}/{made.id}", f"{ORGANIZATIONS}?search={name}"):
        marks = re.findall('<svg class="swatch"[^>]*><rect [^>]*fill="([^"]*)"/></svg>', administrator.opens(path).text)
        assert marks == ([fill] if fill else [])
    assert administrator.stack.management.organizations.get(made.id).color == color


def test_an_organization_is_created_changed_and_deleted(administrator: Administrator) -> None:
    name = f"Harbour {secrets.token_hex(4)}"
    page = administrator.follows(administrator.sends(administrator.opens(f"{ORGANIZATIONS}/new"), name=name))
    assert notices(page) == [f"Created {name}."]
    path = page.url.path
    page = administrator.opens(f"{path}/edit")
    assert administrator.sends(page, description="Ships", isMfaRequired="yes").status_code == 303
    stored = administrator.stack.management.organizations.get(path.rpartition("/")[2])
    assert (stored.description, stored.is_mfa_required) == ("Ships", True)
    assert "Second factor" in administrator.opens(path).text
    assert administrator.sends(administrator.opens(f"{path}/edit"), isMfaRequired=[]).status_code == 303
    assert "Second factor" not in administrator.opens(path).text
    refused = administrator.sends(administrator.opens(f"{path}/edit"), name="")
    assert (refused.status_code, list(errors(refused))) == (400, ["name"])
    page = administrator.follows(administrator.sends(administrator.opens(f"{path}/delete"), confirmation=name))
    assert notices(page) == [f"Deleted {name} and its memberships."]
    assert administrator.opens(path).status_code == 404


def test_members_are_added_by_lines_and_wrong_lines_stay(
    administrator: Administrator, organization: str, user: str
) -> None:
    management = administrator.stack.management
    role = management.organization_roles.create(f"editor {secrets.token_hex(4)}")
    other = management.users.create(username=f"person_{secrets.token_hex(5)}", primary_email=f"{user}@example.com")
    path = f"{ORGANIZATIONS}/{organization}/users"
    lines = f"{user}, {role.name}\n{other.primary_email}\nmissing person\n{user}; no such role\n"
    refused = administrator.sends(administrator.opens(f"{path}/add"), members=lines)
    assert refused.status_code == 422
    shown = " ".join(re.sub("<[^>]+>", "", refused.text).split())
    assert "2 members were added." in shown
    assert "Line 3 missing person: no match" in shown
    assert f"Line 4 {user}; no such role: there is no role no such role of this kind" in shown
    held = {
        member.id: [each.name for each in member.organization_roles]
        for member in management.organizations.users(organization)
    }
    assert held == {user: [role.name], other.id: []}
    assert administrator.sends(administrator.opens(f"{path}/add"), members=" \n").status_code == 422


def test_a_line_beyond_any_name_is_no_match(administrator: Administrator, organization: str) -> None:
    page = administrator.opens(f"{ORGANIZATIONS}/{organization}/users/add")
    refused = administrator.sends(page, members="x" * 131_073)  # more than a field of CSV may have
    assert refused.status_code == 422
    assert "no match" in refused.text


def test_a_members_permissions_name_the_roles_that_they_come_from(
    administrator: Administrator, organization: str, user: str
) -> None:
    management = administrator.stack.management
    mark = secrets.token_hex(4)
    permission = management.organization_permissions.create(f"read:{mark}")
    roles = [management.organization_roles.create(f"{name} {mark}") for name in ("clerk", "editor")]
    for role in roles:
        management.organization_roles.assign_permissions(role.id, [permission.id])
    management.organizations.add_users(organization, [user])
    path = f"{ORGANIZATIONS}/{organization}/users/{user}"
    page = administrator.sends(administrator.opens(path), role=[role.id for role in roles])
    page = administrator.follows(page)
    assert notices(page) == [f"Saved the roles. {STALE}"]
    table = " ".join(re.sub("<[^>]+>", " ", page.text).split())
    assert f"read:{mark} the organization clerk {mark} editor {mark}" in table

    page = administrator.follows(administrator.sends(administrator.opens(f"{path}/remove")))
    assert notices(page) == ["Removed Katherine Johnson."]
    assert list(management.organizations.users(organization)) == []


@pytest.mark.heavy
def test_of_many_roles_a_members_page_shows_those_that_it_has_and_some_that_match(
    administrator: Administrator, organization: str, user: str
) -> None:
    management, mark = administrator.stack.management, secrets.token_hex(4)
    permission = management.organization_permissions.create(f"read:{mark}").id
    names = [f"{mark} {number:02}" for number in range(30)]
    granting = [management.organization_roles.create(name, permission_ids=[permission]) for name in names]
    roles = [role.id for role in granting]
    management.organizations.add_users(organization, [user])
    management.organizations.assign_user_roles(organization, user, roles[28:])
    path = f"{ORGANIZATIONS}/{organization}/users/{user}"

    page = administrator.opens(f"{path}?search={mark}")
    assert re.findall(rf"{mark} \d\d", page.text.partition('id="roles"')[2]) == [*names[28:], *names[:25]]
    assert "30 in all" in page.text
    assert f"read:{mark} the organization {mark} 28 {mark} 29" in " ".join(re.sub("<[^>]+>", " ", page.text).split())
    assert administrator.form(page)[1]["role"] == roles[28:]

    page = administrator.opens(f"{path}?search={mark} 27")
    values = administrator.form(page)[1]
    assert len(re.findall(f"{mark} 27", page.text.partition('<form class="card"')[2])) == 1
    assert administrator.sends(page, role=[*values["role"], roles[27]]).status_code == 303
    assert {role.id for role in management.organizations.user_roles(organization, user)} == set(roles[27:])

    page = administrator.opens(f"{path}?search=nothing like it")
    assert "No further role matches." not in page.text  # there are those that the member has
    assert administrator.sends(page, role=roles[27:28]).status_code == 303
    assert [role.id for role in management.organizations.user_roles(organization, user)] == roles[27:28]


@pytest.mark.parametrize("path", ["nothing", "users/nobody", "nothing/add", "users/nobody/remove"])
def test_what_is_not_there_is_a_page(administrator: Administrator, organization: str, path: str) -> None:
    page = administrator.opens(f"{ORGANIZATIONS}/{organization}/{path}")
    assert (page.status_code, heading(page)) == (404, "There is no such thing")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/users/nobody/no/such/page", 404),
        ("GET", "/users/a%2Fb/roles/x", 404),
        ("GET", "/%ff%00", 404),
        ("GET", "/sign-out", 405),
        ("POST", "/nothing", 404),
        ("POST", "/users", 405),
        ("PUT", "", 405),
    ],
)
def test_a_wrong_address_is_a_page_for_everyone(
    stack: RunningStack, administrator: Administrator, method: str, path: str, status: int
) -> None:
    for browser in (administrator.browser, stack.http):
        page = browser.request(method, f"{CONSOLE}{path}", headers={"Accept-Language": "de"})
        assert (page.status_code, heading(page)) == (status, "Das gibt es nicht")
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert ("Allow" in page.headers) == (status == 405)
    elsewhere = stack.http.get(f"{CONSOLE}s")
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, "entity.not_found")


@pytest.mark.parametrize("cell", ["", "x", "0", "12.0", "-1.0", "0.0.0", "1e3.2"])
def test_cells_that_no_page_shows_change_nothing(administrator: Administrator, cell: str) -> None:
    page = administrator.opens(TEMPLATE)
    target, values = administrator.form(page, f"{TEMPLATE}/changes")
    answer = administrator.browser.post(target, data={**values, "cell": [cell], "was": []})
    assert (answer.status_code, heading(answer)) == (403, "This page is out of date")


@pytest.mark.parametrize("grant", ["", "{}", '["a"]', '["a", {"name": 1}]', json.dumps(["a", {"name": "x" * 9}]) * 2])
def test_unreadable_changes_are_not_saved(administrator: Administrator, grant: str) -> None:
    page = administrator.opens(TEMPLATE)
    target, values = administrator.form(page, f"{TEMPLATE}/changes")
    sent = {"csrf_token": values["csrf_token"], "step": "save", "grant": [grant]}
    assert administrator.browser.post(target, data=sent).status_code == 403
