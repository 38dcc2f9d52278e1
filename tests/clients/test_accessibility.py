"""Every page, on a phone and a desktop, light and dark: axe-core finds no violation, and nothing overflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Page

from tests.support.browser import ORGANIZATIONS, Inspector, Visitor

pytestmark = pytest.mark.clients

MANY = [
    "Harbour Lights", "Quiet Garden Landscaping and Maintenance Cooperative", "Brasserie Zürichsee",
    "North Pier Cranes", "Old Mill Bakery", "Kestrel Ltd", "Lighthouse School", "Meadow Vets", "Orchard Press",
    "Pine Street Dental", "River Cargo", "Sable Studio", "Tern Ferries", "Upland Solar", "Violet Books",
    "Willow Clinic",
]  # fmt: skip


async def home(visitor: Visitor) -> None:
    await visitor.page.goto(f"{visitor.site.world.stack.base_url}/")
    await visitor.sees("Stead is running")


async def sign_in(visitor: Visitor) -> None:
    await visitor.open(visitor.site.client(visitor.site.ours))
    await visitor.sees("Sign in")


async def sign_in_again(visitor: Visitor) -> None:
    await sign_in(visitor)
    await visitor.sign_in("not this one")
    await visitor.page.get_by_role("alert").wait_for()


async def too_many_attempts(visitor: Visitor) -> None:
    await sign_in(visitor)
    for _ in range(11):
        await visitor.sign_in("not this one")
    await visitor.page.get_by_text("Too many attempts").wait_for()


async def select_account(visitor: Visitor) -> None:
    await sign_in(visitor)
    await visitor.sign_in()
    await visitor.is_back()
    await visitor.open(visitor.site.client(visitor.site.branded), "select_account")
    await visitor.sees("Choose an account")


async def consent(visitor: Visitor) -> None:
    site = visitor.site
    for name in ("Harbour Lights", "Quiet Garden Landscaping and Maintenance Cooperative"):
        organization = site.world.management.organizations.create(name).id
        site.world.management.organizations.add_users(organization, [visitor.person.user_id])
    await visitor.open(
        site.client(site.partner, "email", "read:orders", "write:orders", ORGANIZATIONS, site.permission)
    )
    await visitor.sign_in()
    await visitor.sees("Allow access?")


async def consent_with_many_organizations(visitor: Visitor) -> None:
    site, names = visitor.site, MANY
    for name in names:
        organization = site.world.management.organizations.create(name).id
        site.world.management.organizations.add_users(organization, [visitor.person.user_id])
    site.world.caught_up()
    await visitor.finds_the_logo()
    await visitor.open(site.client(site.branded, "email", "read:orders", ORGANIZATIONS, site.permission))
    await visitor.sign_in()
    await visitor.sees("Allow access?")


async def sign_in_with_a_logo(visitor: Visitor) -> None:
    await visitor.finds_the_logo()
    await visitor.open(visitor.site.client(visitor.site.branded))
    await visitor.sees("Sign in")


async def sign_in_in_german(visitor: Visitor) -> None:
    await visitor.page.set_extra_http_headers({"Accept-Language": "de"})
    await visitor.finds_the_logo()
    await visitor.open(visitor.site.client(visitor.site.branded))
    await visitor.sees("Anmelden")


async def consent_in_german(visitor: Visitor) -> None:
    await consent_with_many_organizations(visitor)
    await visitor.page.set_extra_http_headers({"Accept-Language": "de"})
    await visitor.page.reload()
    await visitor.sees("Zugriff erlauben?")


async def consent_to_more(visitor: Visitor) -> None:
    site = visitor.site
    await visitor.open(site.client(site.partner, "read:orders"))
    await visitor.sign_in()
    await visitor.press("Allow")
    await visitor.is_back()
    await visitor.open(site.client(site.partner, "read:orders", "write:orders"))
    await visitor.sees("Allow access?")


async def bad_request(visitor: Visitor) -> None:
    await visitor.page.goto(f"{visitor.site.world.stack.issuer}/auth?client_id=unknown")
    await visitor.sees("This did not work")


async def expired(visitor: Visitor) -> None:
    await visitor.finds_the_logo()
    parameters = f"request=gone&client_id={visitor.site.branded}"
    await visitor.page.goto(f"{visitor.site.world.stack.base_url}/sign-in?{parameters}")
    await visitor.sees("Start again")


async def sign_out(visitor: Visitor) -> None:
    await sign_in(visitor)
    await visitor.sign_in()
    await visitor.is_back()
    await visitor.page.goto(f"{visitor.site.world.stack.issuer}/session/end?client_id={visitor.site.ours}")
    await visitor.sees("Sign out?")


async def confirm_sign_out(visitor: Visitor) -> None:
    site = visitor.site
    await sign_in(visitor)
    await visitor.sign_in()
    await visitor.is_back()
    end = f"{site.world.stack.issuer}/session/end"
    await visitor.page.goto(f"{end}?client_id={site.ours}&post_logout_redirect_uri={site.goodbye}")
    await visitor.sees("Sign out?")


async def still_signed_in(visitor: Visitor) -> None:
    await confirm_sign_out(visitor)
    await visitor.press("Cancel")
    await visitor.sees("You are still signed in")


async def signed_out(visitor: Visitor) -> None:
    await sign_out(visitor)
    await visitor.press("Sign out")
    await visitor.sees("You are signed out")


@pytest.mark.parametrize(
    "way",
    [
        home,
        sign_in,
        sign_in_again,
        too_many_attempts,
        sign_in_with_a_logo,
        sign_in_in_german,
        select_account,
        consent,
        consent_with_many_organizations,
        consent_in_german,
        consent_to_more,
        bad_request,
        expired,
        sign_out,
        confirm_sign_out,
        still_signed_in,
        signed_out,
    ],
)
async def test_a_page_is_accessible(
    visitor: Visitor, inspector: Inspector, way: Callable[[Visitor], Awaitable[None]]
) -> None:
    await way(visitor)
    await inspector.inspect(visitor.page, way.__name__)


async def test_the_checker_finds_violations(page: Page, inspector: Inspector) -> None:
    await page.set_content("<!doctype html><title>x</title><main><input></main>")
    assert {"html-has-lang", "label"} <= {rule for rule, *_ in await inspector.violations(page)}
