"""Applications, API resources and API roles in the console, as a browser without scripts sees them."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from html import unescape

import httpx2 as httpx
import pytest

from stead import NotFound
from tests.support.administrator import CONSOLE, ENDED, STALE, Administrator, errors, heading, notices
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually

APPLICATIONS = f"{CONSOLE}/applications"
RESOURCES = f"{CONSOLE}/resources"
ROLES = f"{CONSOLE}/roles"
HTML = "<i>x</i>\"'&amp; عبد"
OIDC, CUSTOM = "oidcClientMetadata", "customClientMetadata"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name="Grace Hopper")


@pytest.fixture(scope="module")
def reader(stack: RunningStack) -> Administrator:
    return Administrator(stack, "read", name="Reader")


def unique(text: str) -> str:
    return f"{text} {secrets.token_hex(4)}"


def created(administrator: Administrator, area: str, **values: str) -> str:
    """Create something by its form; return its id."""
    answer = administrator.sends(administrator.opens(f"{area}/new"), **values)
    assert answer.status_code == 303, errors(answer)
    page = administrator.follows(answer)
    assert notices(page) == [f"Created {values['name']}."]
    return page.url.path.rpartition("/")[2]


def test_an_application_is_created_changed_and_deleted(stack: RunningStack, administrator: Administrator) -> None:
    name = unique(HTML)
    application_id = created(administrator, APPLICATIONS, name=name, type="Traditional", description=HTML)
    here = f"{APPLICATIONS}/{application_id}"
    page = administrator.opens(here)
    assert HTML not in page.text
    assert heading(page) == f"<bdi>{name}</bdi>"
    answer = administrator.sends(
        page,
        **{
            "name": f"{name} 2",
            f"{OIDC}.redirectUris": "https://a.example.com/cb\r\n\r\n https://b.example.com/cb ",
            f"{OIDC}.postLogoutRedirectUris": "https://a.example.com/",
            f"{CUSTOM}.corsAllowedOrigins": "https://a.example.com",
            f"{CUSTOM}.allowTokenExchange": "yes",
            f"{CUSTOM}.allowManagementApi": "yes",
            f"{CUSTOM}.idTokenTtl": "60",
            f"{CUSTOM}.refreshTokenTtlInDays": "",
            f"{CUSTOM}.rotateRefreshToken": [],
            f"{CUSTOM}.tokenEndpointAuthMethod": "client_secret_post",
            f"{CUSTOM}.minimumAcr": "mfa",
            "branding.primaryColor": "#123456",
            "customData": '{"plan": "large"}',
        },
    )
    assert answer.status_code == 303, (errors(answer), answer.text)
    saved = stack.management.applications.get(application_id)
    assert saved.name == f"{name} 2"
    assert saved.oidc_client_metadata.redirect_uris == ["https://a.example.com/cb", "https://b.example.com/cb"]
    custom = saved.custom_client_metadata
    assert custom.cors_allowed_origins == ["https://a.example.com"]
    assert custom.allow_management_api
    assert (custom.allow_token_exchange, custom.id_token_ttl, custom.refresh_token_ttl_in_days) == (True, 60, 14)
    assert (custom.rotate_refresh_token, custom.require_pkce) == (False, True)
    assert (custom.token_endpoint_auth_method, custom.minimum_acr) == ("client_secret_post", "mfa")
    assert (saved.branding["primaryColor"], saved.custom_data) == ("#123456", {"plan": "large"})

    page = administrator.opens(here)
    assert administrator.sends(page).status_code == 303  # what the page shows is what it saves
    assert stack.management.applications.get(application_id).custom_client_metadata == custom
    assert administrator.sends(page, **{f"{CUSTOM}.minimumAcr": ""}).status_code == 303
    assert stack.management.applications.get(application_id).custom_client_metadata.minimum_acr is None

    deletion = administrator.opens(f"{here}/delete")
    refused = administrator.sends(deletion, confirmation=name)
    assert (refused.status_code, list(errors(refused))) == (422, ["confirmation"])
    gone = administrator.follows(administrator.sends(deletion, confirmation=f"{name} 2"))
    assert notices(gone) == [f"Deleted {name} 2. {ENDED}"]
    with pytest.raises(NotFound):
        stack.management.applications.get(application_id)


@pytest.mark.heavy
def test_wrong_settings_stay_in_their_fields_and_change_nothing(
    stack: RunningStack, administrator: Administrator
) -> None:
    application_id = created(administrator, APPLICATIONS, name=unique("Wrong"), type="SPA")
    before = stack.management.applications.get(application_id)
    page = administrator.opens(f"{APPLICATIONS}/{application_id}")
    wrong = {
        "name": "",
        f"{OIDC}.redirectUris": "https://a.example.com/cb\nhttp://b.example.com/*",
        f"{CUSTOM}.idTokenTtl": "soon",
        f"{CUSTOM}.refreshTokenTtlInDays": "366",
        "branding.primaryColor": "#ffffff",
        "customData": '{"a":' + "[" * 100_000,
    }
    for field, text in wrong.items():
        refused = administrator.sends(page, **{field: text})
        assert refused.status_code in {400, 422}
        assert list(errors(refused)) == [field], refused.text
        assert text in unescape(refused.text)
    assert errors(administrator.sends(page, **{f"{OIDC}.redirectUris": wrong[f"{OIDC}.redirectUris"]}))[
        f"{OIDC}.redirectUris"
    ].startswith("2: ")
    assert list(errors(administrator.sends(page, **{f"{CUSTOM}.minimumAcr": "<b>"}))) == [f"{CUSTOM}.minimumAcr"]
    third = {"isThirdParty": "yes", f"{CUSTOM}.allowTokenExchange": "yes"}
    assert list(errors(administrator.sends(page, **third))) == [f"{CUSTOM}.allowTokenExchange"]
    assert stack.management.applications.get(application_id) == before
    assert list(errors(administrator.sends(administrator.opens(f"{APPLICATIONS}/new"), name="x", type="Other"))) == [
        "type"
    ]


def links(administrator: Administrator, here: str, what: str) -> list[str]:
    """Return the links of an application's page to what can be done with its secrets."""
    return [
        unescape(each) for each in re.findall(rf'href="({here}/secrets/{what}\?[^"]+)"', administrator.opens(here).text)
    ]


@pytest.mark.heavy
def test_a_secret_is_shown_once_is_renamed_and_deleted(stack: RunningStack, administrator: Administrator) -> None:
    application_id = created(administrator, APPLICATIONS, name=unique("Machine"), type="MachineToMachine")
    here = f"{APPLICATIONS}/{application_id}"
    form = administrator.opens(f"{here}/secrets/new")
    name = "a b <1>"
    page = administrator.follows(administrator.sends(form, name=name, expiresAt="2099-12-31"))
    (secret,) = re.findall(r'<code id="secret">([0-9A-Za-z]+)</code>', page.text)
    assert secret not in administrator.opens(here).text
    (listed,) = stack.management.applications.secrets(application_id)
    assert (listed.name, listed.expires_at) == (name, 4102444800000)
    again = administrator.sends(form, name=name)
    assert (again.status_code, list(errors(again))) == (422, ["name"])
    assert list(errors(administrator.sends(form, name="c", expiresAt="9999-12-31x"))) == ["expiresAt"]
    assert list(errors(administrator.sends(form, name="c", expiresAt="2001-01-01"))) == ["expiresAt"]

    stack.management.applications.create_secret(application_id, "taken")
    (link,) = [each for each in links(administrator, here, "rename") if "taken" not in each]
    renaming = administrator.opens(link)
    for refused in ("", "taken", "x" * 257):
        answer = administrator.sends(renaming, newName=refused)
        assert (answer.status_code in {400, 422}, list(errors(answer))) == (True, ["newName"])
    page = administrator.follows(administrator.sends(renaming, newName=(name := "c & d")))
    assert notices(page) == [f"Saved {name}."]
    assert administrator.sends(renaming, newName="e").status_code == 404
    stack.management.applications.delete_secret(application_id, "taken")
    assert [each.name for each in stack.management.applications.secrets(application_id)] == [name]

    (link,) = links(administrator, here, "delete")
    deletion = administrator.opens(link)
    assert list(errors(administrator.sends(deletion, confirmation="x"))) == ["confirmation"]
    assert administrator.sends(deletion, confirmation=name).status_code == 303
    assert list(stack.management.applications.secrets(application_id)) == []
    for what in ("rename", "delete"):
        assert administrator.opens(f"{here}/secrets/{what}").status_code == 404


@pytest.mark.heavy
def test_a_resource_its_permissions_and_a_role_that_grants_them(
    stack: RunningStack, administrator: Administrator
) -> None:
    name, indicator = unique(HTML), f"https://{secrets.token_hex(4)}.example.com/"
    form = {"name": name, "indicator": indicator, "accessTokenTtl": "120"}
    resource_id = created(administrator, RESOURCES, **form)
    twice = administrator.sends(administrator.opens(f"{RESOURCES}/new"), **form)
    assert (twice.status_code, list(errors(twice))) == (422, ["indicator"])
    here = f"{RESOURCES}/{resource_id}"
    assert stack.management.resources.get(resource_id).access_token_ttl == 120
    refused = administrator.sends(administrator.opens(here), accessTokenTtl="0")
    assert (refused.status_code, list(errors(refused))) == (400, ["accessTokenTtl"])
    assert administrator.sends(administrator.opens(here), accessTokenTtl="").status_code == 303
    assert stack.management.resources.get(resource_id).access_token_ttl == 3600

    scope = administrator.opens(f"{here}/scopes/new")
    assert administrator.sends(scope, name="read:<things>", description=HTML).status_code == 303
    assert list(errors(administrator.sends(scope, name="read:<things>"))) == ["name"]
    (stored,) = stack.management.resources.scopes(resource_id)
    assert "read:&lt;things&gt;" in administrator.opens(here).text

    role_id = created(administrator, ROLES, name=unique(HTML), description="", type="User")
    granting = f"{ROLES}/{role_id}/scopes"
    page = administrator.opens(f"{granting}?resource={resource_id}")
    page = administrator.follows(administrator.sends(page, step="save", held=stored.id))
    assert notices(page) == [f"Changed what the role grants. {STALE}"]
    assert [each.id for each in stack.management.roles.scopes(role_id)] == [stored.id]
    assert "read:&lt;things&gt;" in administrator.opens(f"{ROLES}/{role_id}").text

    user = stack.management.users.create(name=unique(HTML))
    holding = administrator.opens(f"{ROLES}/{role_id}/holders?search={user.id}")
    assert user.id in holding.text
    assert administrator.sends(holding, step="save", held=user.id).status_code == 303
    assert [each.id for each in stack.management.roles.users(role_id)] == [user.id]
    assert user.id in administrator.opens(f"{ROLES}/{role_id}").text
    assert (
        administrator.sends(administrator.opens(f"{ROLES}/{role_id}/holders"), step="save", held=[]).status_code == 303
    )
    assert list(stack.management.roles.users(role_id)) == []

    changing = administrator.opens(f"{here}/scopes/{stored.id}")
    assert list(errors(administrator.sends(changing, name="no token"))) == ["name"]
    assert administrator.sends(changing, description="").status_code == 303
    (after,) = stack.management.resources.scopes(resource_id)
    assert (after.name, after.description) == (stored.name, None)

    deleting = administrator.opens(f"{here}/scopes/{stored.id}/delete")
    assert list(errors(administrator.sends(deleting, confirmation="no"))) == ["confirmation"]
    assert administrator.sends(deleting, confirmation=stored.name).status_code == 303
    assert list(stack.management.roles.scopes(role_id)) == []
    assert administrator.opens(f"{here}/scopes/{stored.id}/delete").status_code == 404
    for path, called in ((here, name), (f"{ROLES}/{role_id}", stack.management.roles.get(role_id).name)):
        assert administrator.sends(administrator.opens(f"{path}/delete"), confirmation=called).status_code == 303
        assert administrator.opens(path).status_code == 404


def test_the_resource_of_the_management_api_is_not_deleted(stack: RunningStack, administrator: Administrator) -> None:
    indicator = stack.credentials.management_api.resource
    resource = next(each for each in stack.management.resources.list() if each.indicator == indicator)
    page = administrator.opens(f"{RESOURCES}/{resource.id}/delete")
    refused = administrator.sends(page, confirmation=resource.name)
    assert refused.status_code == 400
    assert 'class="problem"' in refused.text
    assert stack.management.resources.get(resource.id) == resource


def test_the_default_resource_is_set_and_unset(stack: RunningStack, administrator: Administrator) -> None:
    indicator = f"https://{secrets.token_hex(4)}.example.com"
    resource_id = created(administrator, RESOURCES, name=unique("Default"), indicator=indicator)
    here = f"{RESOURCES}/{resource_id}"
    for expected in (True, False):
        assert administrator.sends(administrator.opens(here), f"{here}/default").status_code == 303
        assert stack.management.resources.get(resource_id).is_default is expected


@pytest.mark.heavy
def test_roles_of_machines_are_given_from_both_sides(stack: RunningStack, administrator: Administrator) -> None:
    application_id = created(administrator, APPLICATIONS, name=unique("Machine"), type="MachineToMachine")
    first, second = [
        created(administrator, ROLES, name=unique("Role"), description="", type="MachineToMachine") for _ in range(2)
    ]
    roles = f"{APPLICATIONS}/{application_id}/roles"
    page = administrator.opens(f"{roles}?search={stack.management.roles.get(first).name}")
    assert administrator.sends(page, step="save", held=first).status_code == 303
    holders = administrator.opens(f"{ROLES}/{second}/holders?search={application_id}")
    assert administrator.sends(holders, step="save", held=application_id).status_code == 303
    held = {each.id for each in stack.management.applications.roles(application_id)}
    assert held == {first, second}
    assert administrator.sends(administrator.opens(roles), step="save", held=[]).status_code == 303
    assert list(stack.management.applications.roles(application_id)) == []
    user = stack.management.users.create().id
    refused = administrator.sends(holders, step="save", held=user)
    assert refused.status_code == 422
    assert 'class="problem"' in refused.text


@pytest.mark.heavy
def test_who_only_reads_sees_no_form_and_no_way_to_one(
    stack: RunningStack, administrator: Administrator, reader: Administrator
) -> None:
    application_id = created(administrator, APPLICATIONS, name=unique("Read"), type="MachineToMachine")
    role_id = created(administrator, ROLES, name=unique("Read"), description="", type="User")
    resource = next(iter(stack.management.resources.list()))
    for path in (f"{APPLICATIONS}/{application_id}", f"{ROLES}/{role_id}", f"{RESOURCES}/{resource.id}"):
        page = reader.opens(path).text
        assert "/delete" not in page
        assert '<button type="submit">' not in page
        for action in ("delete", "new"):
            assert reader.opens(f"{path}/{action}").status_code in {403, 404}
        area = path.rpartition("/")[0]
        assert "/new" not in reader.opens(area).text
        assert reader.opens(f"{area}/new").status_code == 403


@pytest.mark.parametrize("area", [APPLICATIONS, RESOURCES, ROLES])
def test_search_and_pages(administrator: Administrator, area: str) -> None:
    for path in (f"{area}?search=%00nothing", f"{area}?type=Other", f"{area}?search={'x' * 128}"):
        assert administrator.opens(path).status_code == 200
    assert administrator.opens(f"{area}?search={'x' * 129}").status_code == 400
    assert administrator.opens(f"{area}/unknown").status_code == 404


@pytest.mark.parametrize("area", [APPLICATIONS, RESOURCES, ROLES, f"{CONSOLE}/users", f"{CONSOLE}/organizations"])
def test_an_id_that_no_path_can_hold_is_not_found(administrator: Administrator, area: str) -> None:
    administrator.opens()  # signs in: a redirect back to such a path would be resolved
    for wrong in ("%2E%2E", "%2e", "%2F", "..%2F.."):
        assert administrator.opens(f"{area}/{wrong}").status_code == 404


@pytest.mark.heavy
def test_what_is_checked_is_held_and_kept_on_other_pages_of_the_lists(
    stack: RunningStack, administrator: Administrator, reader: Administrator
) -> None:
    management, mark = stack.management, secrets.token_hex(4)
    role = management.roles.create(f"Role {mark}", "", "User")
    users = [management.users.create(name=f"{mark} {number:02}").id for number in range(28)]
    management.roles.assign_users(role.id, users[:26])
    path = f"{ROLES}/{role.id}/holders"
    held, page = [each.id for each in management.roles.users(role.id)], administrator.opens(path)
    assert administrator.form(page)[1]["held"] == held[:25]
    found = administrator.sends(page, held=held[1:25], search=users[26], step="search")
    assert (found.status_code, next(iter(management.roles.users(role.id))).id) == (200, held[0])
    assert administrator.form(found)[1]["held"] == held[1:25]
    picked = [*held[1:25], users[26]]
    sent = {**administrator.form(found)[1], "held": picked, "search": users[27]}
    second = administrator.browser.post(f"{path}?page=2", data=sent)
    assert administrator.form(second, path)[1]["held"] == [users[26], held[25]]
    assert "2 changes on other pages of the lists are kept, and saved with this one." in second.text
    assert administrator.sends(second, path, step="save", held=[users[26]]).status_code == 303
    assert {each.id for each in management.roles.users(role.id)} == {*held[1:25], users[26]}

    seen = reader.opens(f"{path}?search={users[27]}")
    assert (seen.status_code, users[27] in seen.text) == (200, True)
    assert "csrf_token" not in seen.text.partition("<main")[2].partition("</main>")[0]


@pytest.mark.heavy
def test_a_part_of_a_page_that_may_not_be_seen_names_the_missing_scope(stack: RunningStack) -> None:
    management = stack.management
    machine = management.applications.create(name=unique("Machine"), type="MachineToMachine").id
    role = management.roles.create(unique("Role"), "", "User").id
    resource = management.resources.create(unique("API"), f"https://{secrets.token_hex(4)}.example.com").id
    for scope, path, missing in (
        ("applications:read", f"{APPLICATIONS}/{machine}", ["roles:read", "organizations:read", "audit:read"]),
        ("roles", f"{ROLES}/{role}", ["users:read", "audit:read"]),
        ("resources:read", f"{RESOURCES}/{resource}", ["audit:read"]),
    ):
        page = Administrator(stack, scope).opens(path)
        assert page.status_code == 200, path
        assert re.findall(r"permission <code><bdi>(.*?)</bdi></code>", page.text) == missing
    own = Administrator(stack, "roles")
    assert own.opens(f"{ROLES}/{role}/holders").status_code == 403
    deletion = own.opens(f"{ROLES}/{role}/delete")
    assert own.sends(deletion, confirmation=management.roles.get(role).name).status_code == 303


@pytest.mark.heavy
def test_what_another_administrator_removed_first_is_removed(stack: RunningStack, administrator: Administrator) -> None:
    role_id = created(administrator, ROLES, name=unique("Race"), description="", type="User")
    first, second = (stack.management.users.create(name=unique("Ada")).id for _ in range(2))
    stack.management.roles.assign_users(role_id, [first])
    page = administrator.opens(f"{ROLES}/{role_id}/holders")
    stack.management.roles.remove_user(role_id, first)
    assert administrator.sends(page, step="save", held=second).status_code == 303
    assert [each.id for each in stack.management.roles.users(role_id)] == [second]
    for wrong in ("", "..", "a/b"):
        assert administrator.sends(page, step="save", **{"was.held": wrong}).status_code == 404
    scopes = administrator.opens(f"{ROLES}/{role_id}/scopes")
    sent = administrator.sends(scopes, step="save", resource="\u0639&x=1#y", **{"was.held": "unknown"})
    assert sent.status_code == 303
    assert sent.headers["Location"].endswith("?resource=%D8%B9%26x%3D1%23y")


@pytest.mark.parametrize("name", ["...", " padded ", "a?b&c=d#e%"])
def test_a_secret_of_any_name_can_be_deleted(stack: RunningStack, administrator: Administrator, name: str) -> None:
    application_id = created(administrator, APPLICATIONS, name=unique("Machine"), type="MachineToMachine")
    stack.management.applications.create_secret(application_id, name)
    here = f"{APPLICATIONS}/{application_id}"
    (link,) = re.findall(rf'href="({here}/secrets/delete\?[^"]+)"', administrator.opens(here).text)
    assert administrator.sends(administrator.opens(unescape(link)), confirmation=name).status_code == 303
    assert list(stack.management.applications.secrets(application_id)) == []


@pytest.mark.heavy
def test_pages_show_what_happened_to_what_they_are_of(stack: RunningStack, administrator: Administrator) -> None:
    api = stack.management
    application = api.applications.create(name=unique("Batch"), type="MachineToMachine").id
    role = api.roles.create(unique("Read"), "Reads", "MachineToMachine").id
    resource = api.resources.create(unique("Orders"), f"https://{secrets.token_hex(4)}.example").id
    template_role = api.organization_roles.create(unique("Clerk")).id
    permission = api.organization_permissions.create(f"sign:{secrets.token_hex(4)}").id
    api.roles.assign_applications(role, [application])
    api.organization_roles.assign_permissions(template_role, [permission])
    for path, id_, operations in (
        (APPLICATIONS, application, {"CreateApplication", "AddRoleApplications"}),
        (ROLES, role, {"CreateRole", "AddRoleApplications"}),
        (RESOURCES, resource, {"CreateResource"}),
        (f"{CONSOLE}/template/roles", template_role, {"CreateOrganizationRole", "AddOrganizationRoleScopes"}),
        (f"{CONSOLE}/template/permissions", permission, {"CreateOrganizationScope"}),
    ):
        page = f"{path}/{id_}"
        eventually(
            lambda page=page, names=operations: all(f">{each}<" in administrator.opens(page).text for each in names)
        )
        assert f"?targetId={id_}" in administrator.opens(page).text
    listed = administrator.opens(f"{CONSOLE}/audit?targetId={application}").text
    assert ">AddRoleApplications<" in listed
    assert ">CreateResource<" not in listed


def code(page: httpx.Response, kind: str) -> dict[str, str]:
    """Return the code that a page shows for one use of an application, by language."""
    found = re.findall(rf'<summary>(\w+)</summary>\s*<pre[^>]*><code id="{kind}-\d">(.*?)</code>', page.text, re.DOTALL)
    return {language: unescape(text) for language, text in found}


def run(command: list[str], **environment: str) -> str:
    """Run a program with these variables and no others of ours; return what it prints."""
    known = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        command, env={**known, **environment}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
def test_the_code_that_a_page_shows_works(stack: RunningStack, administrator: Administrator) -> None:
    management = stack.management
    resource = management.resources.create(
        unique("Orders"), f"https://orders.example.com/{secrets.token_hex(4)}?a='$(b)'"
    )
    scopes = [management.resources.create_scope(resource.id, name).id for name in ("read:$HOME", "pay:`id`")]
    machine = management.applications.create(name=unique("Backend"), type="MachineToMachine")
    role = management.roles.create(unique("Payer"), "", "MachineToMachine", scopes)
    management.applications.assign_roles(machine.id, [role.id])
    secret = management.applications.create_secret(machine.id, "first").value
    shown = code(administrator.opens(f"{APPLICATIONS}/{machine.id}"), "machine")
    assert secret not in "".join(shown.values())
    answer = json.loads(run(["bash", "-c", shown["curl"]], CLIENT_SECRET=secret))
    assert set(answer["scope"].split()) == {"read:$HOME", "pay:`id`"}
    printed = run([sys.executable, "-c", shown["Python"] + "\nprint(tokens.scope)"], CLIENT_SECRET=secret)
    assert set(printed.split()) == {"read:$HOME", "pay:`id`"}

    desk = management.applications.create(
        name=unique("Desk"),
        type="SPA",
        custom_client_metadata={"allowTokenExchange": True},
        oidc_client_metadata={"redirectUris": ["https://desk.example.com/it's?a=$(b)"]},
    )
    page = administrator.opens(f"{APPLICATIONS}/{desk.id}")
    subject_token = management.subject_tokens.create(management.users.create().id).token
    exchanged = json.loads(run(["bash", "-c", code(page, "exchange")["curl"]], SUBJECT_TOKEN=subject_token))
    assert exchanged["token_type"] == "Bearer"
    begin, _, redeem = code(page, "sign-in")["curl"].partition("CODE=")
    address, verifier = run(["bash", "-c", f'{begin}echo "$VERIFIER"']).split()
    answer = administrator.browser.get(address)
    while not (callback := answer.headers["Location"]).startswith("https://desk.example.com/it's?a=$(b)&code="):
        answer = administrator.browser.get(callback)
    redeemed = run(["bash", "-c", redeem], CODE=re.findall("code=([^&]+)", callback)[0], VERIFIER=verifier)
    assert json.loads(redeemed)["id_token"]
