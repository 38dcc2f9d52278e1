"""A person signs in at the provider of a connector with a real browser: redirects, cookies, CSP, and the pages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from tests.support.administrator import ACCOUNT, CONSOLE, Administrator
from tests.support.at_a_browser import PASSWORD, application
from tests.support.browser import Inspector, Visitor, tabbed_to
from tests.support.company import Company
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.clients

LONG = "<img src=x onerror=alert(1)> عبد" + "x" * 120


@pytest.fixture
def company(world: World) -> Iterator[Company]:
    with Company(world, application(world, "SPA")) as company:
        yield company


async def test_the_address_leads_to_the_provider_and_back_to_the_application(
    visitor: Visitor, company: Company, inspector: Inspector
) -> None:
    company.hire()
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.sees("Sign in")
    await inspector.inspect(visitor.page, "identifier")
    await visitor.page.get_by_label("User name, e-mail or phone").fill(company.address("ada"))
    await visitor.press("Continue")
    assert "code" in await visitor.is_back()


async def test_an_account_is_connected_by_signing_in_to_it(
    visitor: Visitor, company: Company, inspector: Inspector
) -> None:
    address = company.address(f"owner-{secrets.token_hex(4)}")
    company.request("POST", "/api/users", primaryEmail=address, isEmailVerified=True, password=PASSWORD)
    company.hire(email=address)
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.page.locator(f"button[value='{company.connector}']").click()
    await visitor.sees("Connect your account")
    await inspector.inspect(visitor.page, "connect")
    await visitor.page.get_by_label("Password").fill(PASSWORD)
    await visitor.press("Sign in")
    assert "code" in await visitor.is_back()


async def test_a_refusal_there_is_said_here(visitor: Visitor, company: Company, inspector: Inspector) -> None:
    company.hire(email_verified=False)
    company.change(allowedDomains=["elsewhere.test"])
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.page.locator(f"button[value='{company.connector}']").click()
    await visitor.page.get_by_role("alert").wait_for()
    await inspector.inspect(visitor.page, "refused")


async def test_signing_in_there_and_disconnecting_take_the_keyboard_alone(visitor: Visitor, company: Company) -> None:
    page, keyboard = visitor.page, visitor.page.keyboard
    company.hire(sub="ada")
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.sees("Sign in")
    await tabbed_to(page, page.locator(f"button[value='{company.connector}']"))
    await keyboard.press("Enter")
    assert "code" in await visitor.is_back()

    await page.goto(f"{company.world.stack.base_url}{ACCOUNT}")
    await tabbed_to(page, page.get_by_role("link", name="Connected accounts"))
    await keyboard.press("Enter")
    await visitor.sees("Connected accounts")
    await tabbed_to(page, page.get_by_role("link", name=re.compile("^Disconnect ")))
    await keyboard.press("Enter")
    await visitor.sees("Disconnect this account?")
    await tabbed_to(page, page.get_by_role("button", name="Disconnect"))
    await keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("This is your only way to sign in, so it stays connected.")

    await page.context.clear_cookies()
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.sees("Sign in")
    await keyboard.type(company.address("ada"))  # the field has the focus
    await keyboard.press("Enter")
    assert "code" in await visitor.is_back()

    await page.context.clear_cookies()
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.sees("Sign in")
    await tabbed_to(page, page.get_by_role("button", name="Use a password"))
    await keyboard.press("Enter")
    await tabbed_to(page, page.get_by_label("Password", exact=True))


async def test_every_page_about_providers_is_accessible(page: Page, world: World, inspector: Inspector) -> None:
    stack, client = world.stack, application(world, "SPA")
    administrator, api, mark = Administrator(stack, "all"), stack.management.organizations, secrets.token_hex(4)
    roles = [stack.management.organization_roles.create(f"{LONG[-80:]} {mark} {each}").id for each in range(3)]
    organization = api.create(LONG).id
    named = {"connectorName": f"{LONG} {mark}", "branding": {"displayName": LONG}}
    with Company(world, client, domains=[], groupsClaim="groups", **named) as company:
        api.add_jit_email_domain(organization, company.domain)
        api.add_jit_connectors(organization, [company.connector])
        api.add_jit_roles(organization, roles[:2])
        group = api.add_jit_group(organization, company.connector, LONG, roles[1:])
        employee = company.hire(groups=[LONG], name=LONG)
        employee.arrive(employee.begin(client))
        eventually(lambda: bool(list(api.users(organization))))  # on a slow machine, after the answer
        (member,) = api.users(organization)
        (identity,) = stack.management.users.identities(member.id)

        await page.goto(f"{stack.base_url}{ACCOUNT}/identities")
        await inspector.inspect(page, "sign-in-with-a-button")
        await page.locator(f"button[value='{company.connector}']").click()
        await page.wait_for_url(f"{stack.base_url}{ACCOUNT}/identities")
        for name, path in {"identities": "", "disconnecting": f"/{identity.id}/remove"}.items():
            await page.goto(f"{stack.base_url}{ACCOUNT}/identities{path}")
            await inspector.inspect(page, f"account-{name}")

        await page.context.clear_cookies()
        await page.goto(f"{stack.base_url}{CONSOLE}")
        await page.get_by_label("User name, e-mail or phone").fill(administrator.username)
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await page.wait_for_url(f"{stack.base_url}{CONSOLE}")
        joining, users = f"organizations/{organization}/joining", f"users/{member.id}/identities"
        for name, path in {
            "connectors": "connectors",
            "connector": f"connectors/{company.connector}",
            "connector-disabling": f"connectors/{company.connector}/disable",
            "connector-deletion": f"connectors/{company.connector}/delete",
            "user": f"users/{member.id}",
            "new-identity": f"{users}/new",
            "identity-removal": f"{users}/{identity.id}/remove",
            "joining": joining,
            "joining-roles": f"{joining}/roles",
            "joining-group": f"{joining}/groups/new",
            "joining-group-removal": f"{joining}/groups/{group}/remove",
            "members": f"organizations/{organization}/users",
            "member": f"organizations/{organization}/users/{member.id}",
        }.items():
            await page.goto(f"{stack.base_url}{CONSOLE}/{path}")
            await inspector.inspect(page, f"console-{name}")
