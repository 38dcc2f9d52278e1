"""The console in a real browser: tasks with scripts, and every page by axe-core, on a phone and a desktop."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.async_api import Dialog, Locator, Page, expect

from tests.support.administrator import CONSOLE, Administrator, AtTheConsole
from tests.support.at_a_browser import PASSWORD
from tests.support.browser import Inspector, tabbed_to
from tests.support.edited_objects import EDITED, KIND, members, received
from tests.support.mail_failures import give_up_mail
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually, eventually_here
from tests.support.world import World

pytestmark = pytest.mark.clients

HOSTILE = "<img src=x onerror=alert(1)> عبد"
SCRIPT = "const getCustomJwtClaims = async () => ({});\n"


@pytest.fixture(scope="module")
def administrator(stack: RunningStack) -> Administrator:
    return Administrator(stack, "all", name=HOSTILE)


async def signed_in(page: Page, administrator: Administrator, path: str = CONSOLE) -> None:
    await page.goto(f"{administrator.stack.base_url}{path}")
    await page.get_by_label("User name, e-mail or phone").fill(administrator.username)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.get_by_role("banner")).to_contain_text(HOSTILE)
    await page.wait_for_load_state()  # and so the script has run


async def test_every_page_is_accessible(page: Page, administrator: Administrator, inspector: Inspector) -> None:
    management = administrator.stack.management
    user = management.users.create(name=HOSTILE * 4, username=f"user_{secrets.token_hex(4)}").id
    for number in range(3):
        permission = management.organization_permissions.create(f"act:{secrets.token_hex(4)}", HOSTILE)
        role = management.organization_roles.create(f"{HOSTILE} {number} {secrets.token_hex(2)}")
        management.organization_roles.assign_permissions(role.id, [permission.id])
    organization = management.organizations.create(HOSTILE).id
    management.organizations.add_users(organization, [user])
    management.organizations.assign_user_roles(organization, user, [role.id])
    management.users.invite(user)
    invitation = management.organization_invitations.create(
        organization,
        f"{'x' * 60}@example.com",
        expires_at=int((time.time() + 3600) * 1000),
        role_ids=[role.id],
        message=HOSTILE,
    )
    await asyncio.to_thread(give_up_mail, administrator.stack, f"{'x' * 60}@example.com", answer=HOSTILE + "x" * 120)
    organizations = f"{CONSOLE}/organizations"
    await signed_in(page, administrator)
    users = f"{CONSOLE}/users"
    for name, path in {
        "home": CONSOLE,
        "users": users,
        "no-users": f"{users}?search=nobody-at-all",
        "new-user": f"{users}/new",
        "invite": f"{users}/invite",
        "invitations": f"{users}/invitations",
        "user": f"{users}/{user}",
        "user-edit": f"{users}/{user}/edit",
        "user-sessions": f"{users}/{administrator.user_id}/sessions",
        "user-permissions": f"{users}/{user}/permissions",
        "user-invitation": f"{users}/{user}/invitation",
        "password": f"{users}/{user}/password",
        "suspension": f"{users}/{user}/suspension",
        "deletion": f"{users}/{user}/delete",
        "roles": f"{users}/{user}/roles",
        "template": f"{CONSOLE}/template",
        "organizations": organizations,
        "organization": f"{organizations}/{organization}",
        "organization-edit": f"{organizations}/{organization}/edit",
        "members": f"{organizations}/{organization}/users",
        "add-members": f"{organizations}/{organization}/users/add",
        "member": f"{organizations}/{organization}/users/{user}",
        "organization-invitations": f"{organizations}/{organization}/invitations",
        "organization-invitation": f"{organizations}/{organization}/invitations/{invitation.id}",
        "organization-invite": f"{organizations}/{organization}/invitations/new",
        "sign-in": f"{CONSOLE}/settings/sign-in",
        "mail": f"{CONSOLE}/settings/mail",
        "no-mail": f"{CONSOLE}/settings/mail?search=nobody-at-all",
        "search": f"{CONSOLE}/search?q=a",
        "shortcuts": f"{CONSOLE}/shortcuts",
        "not-found": f"{users}/nobody",
    }.items():
        await page.goto(f"{administrator.stack.base_url}{path}")
        await inspector.inspect(page, f"console-{name}")


async def test_the_pages_of_clients_claims_and_impersonations_are_accessible(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    stack = administrator.stack
    management, mark = stack.management, secrets.token_hex(4)
    application = management.applications.create(name=HOSTILE * 4, type="Traditional", description=HOSTILE).id
    management.applications.create_secret(application, "first")
    resource = next(each for each in management.resources.list() if each.indicator == stack.credentials.demo.resource)
    role = management.roles.create(f"{HOSTILE} {mark}", HOSTILE, "User", None).id
    management.roles.assign_users(role, [administrator.user_id])
    permission = management.organization_permissions.create(f"act:{mark}", HOSTILE).id
    context = {"reason": HOSTILE, "ticketId": "TCK-1042"}  # its row has something in every column
    subject_token = management.subject_tokens.create(administrator.user_id, context)
    stack.exchange(subject_token.token, scope=["openid"])
    for script in (SCRIPT, f"// {HOSTILE}\n{SCRIPT}"):
        management.custom_claims.save("client-credentials", script)
    management.custom_claims.record("client-credentials", 5)
    eventually(lambda: any(management.impersonations.list(user_id=administrator.user_id)))
    await signed_in(page, administrator)
    for name, path in {
        "applications": "applications",
        "application": f"applications/{application}",
        "new-secret": f"applications/{application}/secrets/new",
        "rename-secret": f"applications/{application}/secrets/rename?name=first",
        "resource": f"resources/{resource.id}",
        "role": f"roles/{role}",
        "role-scopes": f"roles/{role}/scopes?resource={resource.id}",
        "role-holders": f"roles/{role}/holders",
        "connectors": "connectors",
        "new-connector": "connectors/new",
        "claims": "claims/client-credentials",
        "claims-version": "claims/client-credentials/versions/1",
        "claims-comparison": "claims/client-credentials/versions/2?against=1",
        "template-permissions": "template/permissions",
        "template-deletion": f"template/permissions/{permission}/delete",
        "template-file": "template/file",
        "impersonations": "impersonations",
        "impersonation": f"impersonations/{subject_token.impersonation_id}",
        "audit": "audit",
        "audit-refused": "audit?person=nobody&zone=Nowhere",
        "chain": "audit/chain",
    }.items():
        await page.goto(f"{stack.base_url}{CONSOLE}/{path}")
        await inspector.inspect(page, f"console-{name}")
    management.custom_claims.record("client-credentials", 0)
    management.custom_claims.delete("client-credentials")


async def test_the_audit_trail_suggests_names_and_is_asked_in_the_zone_of_the_browser(
    page: Page, administrator: Administrator
) -> None:
    management, mark = administrator.stack.management, secrets.token_hex(4)
    address = f"{mark}@example.com"
    management.users.create(name=f"Ada {mark}", primary_email=address)
    await signed_in(page, administrator, f"{CONSOLE}/audit?from=2026-01-01T00:00")
    zone = await page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    await expect(page.get_by_label("Time zone")).to_have_value(zone)
    await page.get_by_label("User", exact=True).press_sequentially(mark)
    await expect(page.locator(f'#person-list option[value="{address}"]')).to_have_attribute("label", f"Ada {mark}")
    await page.get_by_label("User", exact=True).fill(address)
    await page.get_by_label("Event").select_option("created the user …")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator(".events li")).to_have_count(1)
    await expect(page.locator(".events")).to_contain_text(f"created the user Ada {mark}")
    given = parse_qs(page.url.partition("?")[2])
    assert (given["person"], given["event"], given["zone"]) == ([address], ["CreateUser"], [zone])


async def test_an_error_of_a_script_is_marked_in_its_line(page: Page, administrator: Administrator) -> None:
    await signed_in(page, administrator, f"{CONSOLE}/claims/access-token")
    await page.get_by_label("Script", exact=True).fill("const getCustomJwtClaims = async () => {\n  return {;\n};")
    await expect(page.locator(".gutter")).to_have_text("1\n2\n3")
    await page.get_by_role("button", name="Run with the sample").click()
    await expect(page.get_by_role("alert")).to_contain_text("Line 2, column")
    await expect(page.locator(".gutter")).to_have_text("1\n▸ 2\n3")


async def test_a_page_saved_unchanged_changes_nothing_and_what_is_pasted_is_saved_whole(
    page: Page, administrator: Administrator
) -> None:
    management = administrator.stack.management
    await signed_in(page, administrator)
    for make in (make for makers in EDITED.values() for make in makers):
        edited = make(management)
        expected = members(management, edited)
        for typed in ({}, edited.typed):
            await page.goto(f"{administrator.stack.base_url}{CONSOLE}/{edited.page}")
            for name, value in typed.items():
                await page.locator(f"[id={name}]").fill(value)
            await page.get_by_role("button", name="Save").click()
            await expect(page.get_by_role("status").first).to_contain_text(re.compile("Saved|Nothing"))
            assert members(management, edited) == expected | {name: received(value) for name, value in typed.items()}
    management.custom_claims.delete(KIND)


async def test_the_second_of_two_administrators_decides(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    management, mark = administrator.stack.management, secrets.token_hex(4)
    user = management.users.create(name=f"Ada {mark}").id
    organization = management.organizations.create(f"Engines {mark}").id
    role = management.organization_roles.create(f"{HOSTILE} {mark}").id
    permission = management.organization_permissions.create(f"read:{mark}").id
    management.organizations.add_users(organization, [user])
    await signed_in(page, administrator, f"{CONSOLE}/users/{user}/edit")
    management.users.update(user, name=HOSTILE * 4)
    await page.get_by_label("Name", exact=True).fill("Augusta")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert")).to_contain_text("This was changed")
    await expect(page.get_by_label("Name", exact=True)).to_have_accessible_description(f"Saved now: {HOSTILE * 4}")
    await inspector.inspect(page, "console-user-overtaken")
    await page.get_by_role("button", name="Replace what is saved").click()
    await expect(page.get_by_role("status").first).to_contain_text("Saved Augusta.")

    await page.goto(f"{administrator.stack.base_url}{CONSOLE}/organizations/{organization}/users/{user}")
    management.organizations.assign_user_roles(organization, user, [role])
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".tag.saved")).to_have_text("changed meanwhile")
    await inspector.inspect(page, "console-member-overtaken")

    await page.goto(f"{administrator.stack.base_url}{CONSOLE}/template?permissions={mark}&roles={mark}")
    management.organization_roles.assign_permissions(role, [permission])
    await page.get_by_role("button", name="Show what this changes").click()
    await expect(page.get_by_role("heading", name="Granted meanwhile")).to_be_visible()
    await inspector.inspect(page, "console-template-overtaken")


async def test_the_matrix_counts_what_differs(page: Page, administrator: Administrator) -> None:
    management = administrator.stack.management
    mark = secrets.token_hex(4)
    for name in ("read", "write"):
        management.organization_permissions.create(f"{name}:{mark}")
    management.organization_roles.create(f"clerk {mark}")
    await signed_in(page, administrator, f"{CONSOLE}/template?permissions={mark}&roles={mark}")
    boxes = page.locator(".matrix input[type=checkbox]")
    await boxes.nth(0).focus()
    await page.keyboard.press("Space")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Space")
    await expect(page.locator("#changed")).to_have_text("2 changed")
    async with page.expect_request(lambda request: request.method == "POST") as sent:
        await page.get_by_role("button", name="Show what this changes").click()
    form = parse_qs((await sent.value).post_data or "", keep_blank_values=True)
    assert (form["differs"], "cell" in form) == (["0.0 0.1"], False)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").first).to_contain_text("Saved the organization template")
    role = next(each for each in management.organization_roles.list() if each.name == f"clerk {mark}")
    granted = {each.name for each in management.organization_roles.permissions(role.id)}
    assert granted == {f"read:{mark}", f"write:{mark}"}


async def test_scripts_run_for_those_who_may_only_look(page: Page, stack: RunningStack) -> None:
    mark = secrets.token_hex(4)
    stack.management.organization_permissions.create(f"read:{mark}")
    stack.management.organization_roles.create(f"clerk {mark}")
    await signed_in(page, Administrator(stack, "read", name=HOSTILE), f"{CONSOLE}/template?permissions={mark}")
    await expect(page.locator(".matrix input[type=checkbox]").first).to_be_disabled()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search everywhere")).to_be_focused()


class Leaving:
    """Follows links, and stays where the browser asks whether to."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._asked: list[str] = []
        page.on("dialog", self._stay)

    async def is_asked(self) -> None:
        """Follow a link out of the page; the browser asks, and the page stays."""
        here = self._page.url
        await self._page.get_by_role("link", name="Users", exact=True).first.click()
        await eventually_here(lambda: bool(self._asked))
        assert (self._asked.pop(), self._page.url) == ("beforeunload", here)

    async def is_not_asked(self, link: str = "Users") -> None:
        """Follow a link out of the page; the next page is the users."""
        await self._page.get_by_role("link", name=link, exact=True).first.click()
        await self._page.wait_for_url(f"**{CONSOLE}/users")
        assert self._asked == []

    async def _stay(self, dialog: Dialog) -> None:
        self._asked.append(dialog.type)
        await dialog.dismiss()


async def test_leaving_a_page_with_unsaved_work_asks_first(page: Page, administrator: Administrator) -> None:
    management, mark, origin = administrator.stack.management, secrets.token_hex(4), administrator.stack.base_url
    management.organization_permissions.create(f"read:{mark}")
    management.organization_roles.create(f"clerk {mark}")
    user = management.users.create(name=f"Ada {mark}").id
    leaving = Leaving(page)
    await signed_in(page, administrator, f"{CONSOLE}/template?permissions={mark}&roles={mark}")
    box = page.locator(".matrix input[type=checkbox]")
    await box.check()
    await leaving.is_asked()
    await expect(box).to_be_checked()
    await page.get_by_role("button", name="Show what this changes").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("What this changes")
    await leaving.is_asked()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").first).to_contain_text("Saved the organization template")
    await leaving.is_not_asked()

    await page.goto(f"{origin}{CONSOLE}/claims/access-token")
    await page.get_by_label("Script", exact=True).fill(SCRIPT)
    await page.get_by_role("button", name="Run with the sample").click()
    await expect(page.get_by_role("heading", name="What the script gives")).to_be_visible()
    await leaving.is_asked()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").first).to_contain_text("Saved as version")
    await leaving.is_not_asked()
    management.custom_claims.delete("access-token")

    await page.goto(f"{origin}{CONSOLE}/users/{user}/edit")
    name = page.get_by_label("Name", exact=True)
    await name.fill("Augusta")
    await leaving.is_asked()
    await name.fill(f"Ada {mark}")
    await leaving.is_not_asked()

    await page.goto(f"{origin}{CONSOLE}/users/new")
    await name.fill("Augusta")
    await page.get_by_label("E-mail", exact=True).fill("no address")
    await page.get_by_role("button", name="Create user").click()
    await expect(page.get_by_text("must be an e-mail address")).to_be_visible()
    await leaving.is_asked()
    await leaving.is_not_asked("Cancel")


async def test_a_user_can_be_deleted_only_by_name(page: Page, administrator: Administrator) -> None:
    name = f"Ada {secrets.token_hex(4)}"
    user = administrator.stack.management.users.create(name=name).id
    await signed_in(page, administrator, f"{CONSOLE}/users/{user}/delete")
    button = page.get_by_role("button", name="Delete user")
    await expect(button).to_be_disabled()
    await page.get_by_label("to confirm").fill(name)
    await button.click()
    await expect(page.get_by_role("status").first).to_contain_text(f"Deleted {name}.")


async def test_a_deletion_is_confirmed_again_when_more_would_be_lost(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    management, name = administrator.stack.management, f"Ada {secrets.token_hex(4)}"
    user = management.users.create(name=name).id
    await signed_in(page, administrator, f"{CONSOLE}/users/{user}/delete")
    management.organizations.add_users(management.organizations.create(HOSTILE).id, [user])
    button = page.get_by_role("button", name="Delete user")
    await page.get_by_label("to confirm").fill(name)
    await button.click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing was done")
    await expect(page.get_by_role("main")).to_contain_text("the membership in 1 organization")
    await expect(page.get_by_label("to confirm")).to_have_value("")
    await expect(button).to_be_disabled()
    await inspector.inspect(page, "console-deletion-overtaken")
    await page.get_by_label("to confirm").fill(name)
    await button.click()
    await expect(page.get_by_role("status").first).to_contain_text(f"Deleted {name}.")


async def test_a_slash_begins_a_search(page: Page, administrator: Administrator) -> None:
    await signed_in(page, administrator)
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search everywhere")).to_be_focused()


async def test_single_keys_list_the_shortcuts_lead_to_areas_and_can_be_switched_off(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    await signed_in(page, administrator)
    for keys, path in (("gu", "/users"), ("gl", "/audit"), ("gh", "")):
        await page.keyboard.type(keys)
        await page.wait_for_url(f"**{CONSOLE}{path}")
    await page.keyboard.press("?")
    shortcuts = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(shortcuts).to_contain_text("Search everywhere")
    await inspector.inspect(page, "console-shortcuts-dialog")
    await page.keyboard.type("gu")
    await expect(shortcuts).to_be_visible()
    await shortcuts.get_by_label("Use single-key shortcuts").uncheck()
    await page.keyboard.press("Escape")
    await expect(shortcuts).to_be_hidden()

    await page.keyboard.press("?")
    await page.keyboard.press("/")
    await expect(shortcuts).to_be_hidden()
    await expect(page.get_by_label("Search everywhere")).not_to_be_focused()
    await page.get_by_role("link", name="Keyboard shortcuts").click()
    await shortcuts.get_by_label("Use single-key shortcuts").check()
    await shortcuts.get_by_role("button", name="Close").click()
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search everywhere")).to_be_focused()
    await page.keyboard.type("gu")
    await expect(page).to_have_url(f"{administrator.stack.base_url}{CONSOLE}")


async def test_on_a_phone_the_areas_are_a_menu_for_the_keyboard_too(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await signed_in(page, administrator)
    menu, users = page.get_by_role("button", name="Menu"), page.get_by_role("link", name="Users", exact=True)
    await expect(users).to_be_hidden()
    await menu.focus()
    await page.keyboard.press("Enter")
    await expect(users).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(users).to_be_hidden()
    await expect(menu).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Close")).to_be_focused()
    for _ in range(2):
        await page.keyboard.press("Tab")
    await expect(users).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{CONSOLE}/users")
    await menu.click()
    await inspector.inspect(page, "console-menu")


async def test_what_a_support_lead_asks_is_answered_with_the_keyboard(page: Page, administrator: Administrator) -> None:
    """By ticket, by the customer, and to end it; the list refreshes itself, and what was searched for is kept here."""
    stack, management, mark = administrator.stack, administrator.stack.management, secrets.token_hex(4)
    customer = management.users.create(name=f"Customer {mark}").id
    ids = []
    for number in range(2):
        context = {"reason": HOSTILE, "ticketId": f"TCK-{mark}{number}"}
        token = management.subject_tokens.create(customer, context)
        stack.exchange(token.token, scope=["openid"])
        ids.append(token.impersonation_id)
    eventually(lambda: sum(each.issued_to != "" for each in management.impersonations.list(user_id=customer)) == 2)
    await page.clock.install()
    await signed_in(page, administrator)

    await page.keyboard.press("/")
    await page.keyboard.type(f"TCK-{mark}0")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Impersonations")).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{stack.base_url}{CONSOLE}/impersonations/{ids[0]}")
    await expect(page.get_by_role("main")).to_contain_text(HOSTILE)

    await page.keyboard.press("g")
    await page.keyboard.press("i")
    await page.get_by_label("User or actor").fill(f"Customer {mark}")
    await page.keyboard.press("Enter")
    rows = page.locator("#list tbody tr")
    await expect(rows).to_have_count(2)
    management.impersonations.end(ids[0])
    eventually(lambda: management.impersonations.get(ids[0]).ended_at is not None)
    await page.locator("#list summary").nth(1).focus()
    await page.clock.run_for(16_000)
    await expect(rows).to_have_count(1)
    await expect(page.get_by_text("1 impersonation", exact=True)).to_be_visible()

    await page.locator("#list summary").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("found")
    await page.clock.run_for(16_000)  # what is open is not refreshed
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").first).to_contain_text("Ended.")
    await expect(page.get_by_text("None matches.")).to_be_visible()
    eventually(lambda: management.impersonations.get(ids[1]).end_reason == "found")

    await page.keyboard.press("/")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{stack.base_url}{CONSOLE}/search?q=TCK-{mark}0")
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_load_state()
    assert await page.evaluate("localStorage.getItem('stead-searches')") is None


async def test_invitations_sessions_mail_and_registration_take_the_keyboard_alone(
    page: Page, administrator: Administrator
) -> None:
    stack, mark = administrator.stack, secrets.token_hex(4)
    organization = stack.management.organizations.create(f"Engines {mark}").id
    invitee, done = f"{mark}@example.com", page.get_by_role("status").first
    person = Administrator(stack, name="Ada")
    await asyncio.to_thread(AtTheConsole(stack.base_url, person.username, PASSWORD).opens, "/account")
    await asyncio.to_thread(give_up_mail, stack, f"{mark}@id.test")
    await signed_in(page, administrator, f"{CONSOLE}/organizations/{organization}")

    await tabbed_to(page, page.get_by_role("link", name="Invite by e-mail"))
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/invitations/new")
    await tabbed_to(page, page.get_by_label("E-mail", exact=True))
    await page.keyboard.type(invitee)
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("The invitation is on its way by e-mail.")
    await tabbed_to(page, page.get_by_role("link", name=invitee))
    await page.keyboard.press("Enter")
    await tabbed_to(page, page.get_by_role("button", name="Withdraw the invitation"))
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("Withdrew the invitation.")

    await page.goto(f"{stack.base_url}{CONSOLE}/users/{person.user_id}/sessions")
    await tabbed_to(page, page.get_by_role("button", name=re.compile("^End ")))
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("Ended the session.")

    await tabbed_to(page, page.get_by_role("link", name="Mail", exact=True))
    await page.keyboard.press("Enter")
    await tabbed_to(page, page.get_by_label("Search mail"))
    await page.keyboard.type(mark)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/settings/mail?search=*")
    await expect(page.locator("main tbody tr")).to_have_count(1)

    await tabbed_to(page, page.get_by_role("link", name="Sign-in", exact=True))
    await page.keyboard.press("Enter")
    await tabbed_to(page, page.get_by_label("Who may register"))
    await page.keyboard.press("ArrowDown")
    await tabbed_to(page, page.get_by_label("Domains"))
    await page.keyboard.type("id.test")
    await tabbed_to(page, page.get_by_role("button", name="Save"))
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("Saved the policy.")
    assert stack.management.sign_in_policy.get().registration_domains == ("id.test",)
    stack.management.sign_in_policy.update(registration=None, registration_domains=None)


async def test_the_questions_about_a_person_take_four_steps_with_the_keyboard(
    page: Page, administrator: Administrator, inspector: Inspector
) -> None:
    management, mark = administrator.stack.management, secrets.token_hex(4)
    scopes = {
        scope.name: scope.id
        for resource in management.resources.list()
        if resource.indicator == administrator.stack.credentials.management_api.resource
        for scope in management.resources.scopes(resource.id)
    }
    auditor = management.roles.create(f"Exports {mark}", "Exports and nothing else", "User", [scopes["audit:export"]])
    await signed_in(page, administrator, f"{CONSOLE}/users")

    await page.get_by_role("link", name="Invite a person").focus()  # one
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Invite a person")
    await page.get_by_label("E-mail", exact=True).fill(f"auditor.{mark}@example.com")  # two
    named = page.get_by_role("textbox", name="API role").or_(page.get_by_role("combobox", name="API role"))
    if await named.count():
        await named.fill(auditor.name)  # three
    else:
        await page.get_by_role("radio", name=auditor.name).check()
    await page.keyboard.press("Enter")  # four
    link = page.locator("#secret")
    await expect(link).to_contain_text("/console/invitation#")
    address = await link.inner_text()
    administrator.stack.recorder.keep(address.partition("#")[2], "invitation")
    await inspector.inspect(page, "console-invited")

    await expect(page.get_by_role("heading", name="What this user may do, and why")).to_be_visible()
    await expect(page.locator("details")).to_contain_text(["audit:export"])
    await expect(page.locator("details a", has_text=auditor.name)).to_be_visible()

    await page.goto(address)
    await expect(page.get_by_label("Code of the invitation")).to_have_value(address.partition("#")[2])
    assert "#" not in page.url


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_what_happened_takes_four_steps_with_the_keyboard(
    page: Page, administrator: Administrator, world: World
) -> None:
    """Who acted as a customer last week and why, what was recorded about one person, and who changed a role."""
    stack, management, mark = administrator.stack, administrator.stack.management, secrets.token_hex(4)
    agent, customer = (management.users.create(name=f"{name} {mark}").id for name in ("Agent", "Customer"))
    role = management.roles.create(f"Clerk {mark}", "", "User")
    actor_token = world.userinfo_token(agent)
    ids = []
    for number in range(2):
        context = {"reason": f"why {number} {mark}", "ticketId": f"TCK-{mark}{number}"}
        token = management.subject_tokens.create(customer, context)
        stack.exchange(token.token, scope=["openid"], actor_token=actor_token)
        ids.append(token.impersonation_id)
    eventually(lambda: len(list(management.logs.list(person=customer, key="token.exchange.succeeded"))) == 2)
    management.impersonations.end(ids[0])
    eventually(lambda: management.impersonations.get(ids[0]).ended_at is not None)
    await signed_in(page, administrator, f"{CONSOLE}/roles/{role.id}")
    await page.get_by_label("Description").fill("Sees orders")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").first).to_contain_text("Saved")
    eventually(lambda: any(management.logs.list(target_id=role.id, operation="UpdateRole")))

    async def follow(link: Locator) -> None:
        await link.focus()
        await page.keyboard.press("Enter")

    async def find(name: str) -> None:
        await page.keyboard.press("/")  # one
        await page.keyboard.type(name)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Search")
        await page.keyboard.press("ArrowDown")  # two
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)

    await find(f"Customer {mark}")
    acted = page.get_by_role("region", name="Who acted as this user").locator("tbody tr")
    await expect(acted).to_contain_text([f"Agent {mark}"] * 2)
    await expect(acted).to_contain_text([f"why 1 {mark}", f"why 0 {mark}"])
    await expect(acted).to_contain_text(["active", "ended"])
    await follow(page.get_by_role("link", name="In the audit trail"))  # three
    await follow(page.get_by_role("link", name="Last 7 days"))  # four
    await expect(page.get_by_role("link", name="Last 7 days")).to_have_attribute("aria-current", "true")
    entries = page.locator(".events li")
    await expect(entries.filter(has_text=f"Agent {mark} began to act as Customer {mark}")).to_have_count(2)
    issued = entries.filter(has_text=f"got a subject token to act as Customer {mark}")
    await expect(issued).to_contain_text([f"why 1 {mark}", f"why 0 {mark}"])

    await page.goto(f"{stack.base_url}{CONSOLE}")
    await page.keyboard.type("gl")  # one
    await page.get_by_label("User", exact=True).focus()  # two
    await page.keyboard.type(f"Customer {mark}")
    await page.keyboard.press("Enter")  # three
    await expect(page).to_have_url(re.compile("person=Customer"))
    async with page.expect_download() as started:
        await follow(page.get_by_role("link", name="Export as JSON lines"))  # four
    exported = lines_of(await (await started.value).path())
    recorded = [each.id for each in management.logs.list(person=customer)]
    assert [json.loads(line)["id"] for line in exported] == recorded[::-1]
    assert len(recorded) > 2 * len(ids)

    await find(role.name)
    changed = entries.filter(has_text=f"changed the API role {role.name}")
    await expect(changed).to_contain_text(HOSTILE)
    await follow(page.get_by_role("link", name="In the audit trail"))  # three
    await expect(page).to_have_url(re.compile(f"targetId={role.id}"))
    await expect(changed.get_by_role("link", name=HOSTILE)).to_have_attribute("href", re.compile(administrator.user_id))
