"""The example support desk in a real browser."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from provision.credentials import DemoUser
from tests.support.browser import Inspector
from tests.support.factors import AuthenticatorApp
from tests.support.mailed_links import mails_of
from tests.support.running_stack import RunningStack
from tests.support.support_desk import ENGINEERS, RunningDesk, role, user

pytestmark = pytest.mark.clients

REFUSED_FORM = "Failed to load resource: the server responded with a status of 400 (Bad Request)"


@pytest.fixture(scope="module")
def desk(stack: RunningStack, run_directory: Path) -> Iterator[RunningDesk]:
    desk = RunningDesk(run_directory)
    yield desk
    assert desk.stop() == 0


@pytest.fixture
async def screen(browser: Browser) -> AsyncIterator[Page]:
    """A tab with a fresh profile; the browser reports no error but the refused form."""
    context = await browser.new_context()
    complaints: list[str] = []
    context.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    yield await context.new_page()
    await context.close()
    assert complaints == [REFUSED_FORM]


async def sign_in(page: Page, desk: RunningDesk, who: DemoUser) -> None:
    await page.goto(desk.url)
    await page.get_by_role("link", name="Sign in").click()
    await page.get_by_label("User name, e-mail or phone").fill(who.username)
    await page.get_by_label("Password").fill(who.password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def claim(page: Page, name: str) -> str:
    """Return one claim of the token as the page shows it."""
    return await page.locator("dt").filter(has=page.get_by_text(name, exact=True)).locator("+ dd").inner_text()


async def test_an_agent_acts_as_a_customer_and_stops(
    screen: Page, desk: RunningDesk, stack: RunningStack, inspector: Inspector
) -> None:
    agent, customer = stack.credentials.demo.users
    await screen.goto(desk.url)
    await inspector.inspect(screen, "desk-welcome")
    await sign_in(screen, desk, agent)
    await expect(screen.get_by_role("heading", level=1)).to_have_text("Customers")
    assert await claim(screen, "sub") == agent.id
    await inspector.inspect(screen, "desk-customers")

    await screen.get_by_role("link", name="Act as Customer").click()
    await screen.get_by_label("Ticket").fill("T-1042")
    await screen.get_by_role("button", name="Act as Customer").click()
    await expect(screen.get_by_label("Reason")).to_be_focused()  # the browser requires it
    await screen.get_by_label("Reason").fill("   ")
    await screen.get_by_role("button", name="Act as Customer").click()
    await expect(screen.get_by_role("alert")).to_have_text("A user, a reason and a ticket are required.")
    await inspector.inspect(screen, "desk-reason")

    await screen.get_by_label("Reason").fill("Cannot see an order since the move")
    await screen.get_by_role("button", name="Act as Customer").click()
    await expect(screen.get_by_role("heading", level=1)).to_have_text("Orders of Customer")
    banner = screen.get_by_role("region", name="Acting as a customer")
    await expect(banner).to_contain_text("T-1042: Cannot see an order since the move")
    await expect(banner.locator("#countdown")).to_have_text(re.compile(r"^\d+:\d\d$"))
    assert await claim(screen, "sub") == customer.id
    assert json.loads(await claim(screen, "act")) == {"sub": agent.id}
    await inspector.inspect(screen, "desk-customer")

    cancel = screen.get_by_role("button", name="Cancel order").first
    order = screen.get_by_role("listitem").filter(has=cancel).first
    name = await order.locator("strong").inner_text()
    await cancel.click()
    await expect(screen.get_by_role("listitem").filter(has_text=name)).to_contain_text(f"cancelled by {agent.id}")

    await banner.get_by_role("button", name="Stop").click()
    await expect(screen.get_by_role("heading", level=1)).to_have_text("Customers")
    assert await claim(screen, "sub") == agent.id
    await screen.go_back()
    await screen.reload()
    await expect(banner).to_have_count(0)

    await screen.get_by_role("button", name="Sign out").click()
    await expect(screen.get_by_role("link", name="Sign in")).to_be_visible()
    await screen.get_by_role("link", name="Sign in").click()
    await expect(screen.get_by_label("Password")).to_be_visible()  # signed out at the identity service as well


async def test_an_agent_sets_up_a_second_factor_in_the_middle_of_an_impersonation(
    page: Page, desk: RunningDesk, stack: RunningStack, inspector: Inspector
) -> None:
    engineer = user(stack, f"engineer_{secrets.token_hex(4)}", "Engineer", role(stack, ENGINEERS).id)
    address = f"{engineer.username}@example.com"
    stack.management.users.update(engineer.id, primary_email=address, is_email_verified=True)
    await sign_in(page, desk, engineer)
    await page.get_by_role("link", name="Act as Customer").click()
    await page.get_by_label("Ticket").fill("T-7")
    await page.get_by_label("Reason").fill("Cannot see an order")
    stack.management.impersonation_policy.update(actor_acr="mfa")
    try:
        await page.get_by_role("button", name="Act as Customer").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in again")
        await inspector.inspect(page, "desk-sign-in-again")
        await page.get_by_role("link", name="Sign in").click()
        await set_up_an_authenticator_app(page, stack, engineer)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Orders of Customer")
    finally:
        stack.management.impersonation_policy.update(actor_acr=None)
    banner = page.get_by_role("region", name="Acting as a customer")
    await expect(banner).to_contain_text("T-7: Cannot see an order")
    assert json.loads(await claim(page, "act")) == {"sub": engineer.id}
    await banner.get_by_role("button", name="Stop").click()


async def set_up_an_authenticator_app(page: Page, stack: RunningStack, who: DemoUser) -> None:
    await page.get_by_role("button", name="Mail a code to").click()
    await page.get_by_role("status").wait_for()
    mails = await mails_of(stack._stack.management)
    code = [mail for mail in mails if mail.user_id == who.id][-1].values["code"]
    await page.get_by_role("link", name="Set up an authenticator app").click()
    app = AuthenticatorApp((await page.locator("code.key").inner_text()).replace(" ", ""))
    await page.get_by_label("Code in your authenticator app").fill(app.code())
    await page.get_by_label("Code from the mail").fill(code)
    await page.get_by_role("button", name="Set up").click()
    await page.get_by_role("link", name="I have kept them: continue").click()


async def test_a_user_without_the_right_is_told_so(
    page: Page, desk: RunningDesk, stack: RunningStack, inspector: Inspector
) -> None:
    await sign_in(page, desk, stack.credentials.demo.users[1])
    await expect(page.get_by_role("heading", level=1)).to_have_text("This is not allowed")
    await expect(page.get_by_text("Your account cannot see customers.")).to_be_visible()
    await inspector.inspect(page, "desk-not-allowed")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("link", name="Sign in")).to_be_visible()
