"""A person signs in at the provider of a connector with a real browser: redirects, cookies, CSP, and the pages."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.at_a_browser import PASSWORD, application
from tests.support.browser import Inspector, Visitor
from tests.support.company import Company
from tests.support.world import World

pytestmark = pytest.mark.clients


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
