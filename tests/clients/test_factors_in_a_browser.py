"""Passkeys, authenticator apps and recovery codes in Chromium, with its virtual authenticator (WebDriver extension)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from tests.support.administrator import CONSOLE, Administrator
from tests.support.at_a_browser import PASSWORD
from tests.support.browser import BACK, ApplicationSite, Inspector, VirtualAuthenticator, Visitor, tabbed_to
from tests.support.factors import AuthenticatorApp
from tests.support.mailed_links import mails_of

pytestmark = pytest.mark.clients

MFA, PHR = "urn:service:acr:mfa", "phr"


@pytest.fixture
def visitor(visitor: Visitor) -> Visitor:
    """A user with a verified e-mail address."""
    management, user_id = visitor.site.world.management, visitor.person.user_id
    address = f"{visitor.person.username}@example.com"
    management.users.update(user_id, primary_email=address, is_email_verified=True)
    return visitor


async def demand(visitor: Visitor, acr: str | None = None, **more: str) -> None:
    """Press "sign in" at an application that demands this level."""
    address = visitor.site.client(visitor.site.ours).sign_in_url(visitor.site.redirect_uri)
    parameters = {**({"acr_values": acr} if acr else {}), **more}
    await visitor.page.goto(address + "".join(f"&{name}={value}" for name, value in parameters.items()))


async def mailed_code(visitor: Visitor) -> str:
    """Have a code mailed, and return it from the mail."""
    await visitor.page.get_by_role("button", name="Mail a code to").click()
    await visitor.page.get_by_role("status").wait_for()
    mails = await mails_of(visitor.site.world.stack._stack.management)
    return [mail for mail in mails if mail.user_id == visitor.person.user_id][-1].values["code"]


async def test_an_authenticator_app_is_set_up_and_used(visitor: Visitor) -> None:
    page = visitor.page
    await demand(visitor, MFA)
    await visitor.sign_in()
    await visitor.sees("Protect your account")
    code = await mailed_code(visitor)
    await page.get_by_role("link", name="Set up an authenticator app").click()
    await visitor.sees("Set up an authenticator app")
    await expect(page.get_by_role("img", name="QR code with the key")).to_be_visible()
    app = AuthenticatorApp((await page.locator("code.key").inner_text()).replace(" ", ""))
    await page.get_by_label("Code in your authenticator app").fill(app.wrong())
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Set up")
    await expect(page.get_by_role("alert")).to_have_text("The code is not right, or was used already.")
    await page.get_by_label("Code in your authenticator app").fill(app.earlier())
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Set up")
    await visitor.sees("Keep your recovery codes")
    codes = await page.locator(".codes code").all_inner_texts()
    assert len(set(codes)) == 10
    await page.get_by_role("link", name="I have kept them: continue").click()
    assert (await visitor.is_back())["code"]


async def create_a_passkey(visitor: Visitor, *, name: str = "") -> list[str]:
    """Create a passkey as the first factor; return the recovery codes."""
    page = visitor.page
    await demand(visitor, PHR)
    await visitor.sign_in()
    await visitor.sees("Protect your account")
    await expect(page.get_by_role("link", name="Set up an authenticator app")).to_have_count(0)
    code = await mailed_code(visitor)
    await page.get_by_role("link", name="Create a passkey").click()
    await page.get_by_label("Code from the mail").fill(code)
    await page.get_by_label("Name of the passkey").fill(name)
    await visitor.press("Create a passkey")
    await visitor.sees("Keep your recovery codes")
    codes = await page.locator(".codes code").all_inner_texts()
    await page.get_by_role("link", name="I have kept them: continue").click()
    assert (await visitor.is_back())["code"]
    return codes


async def test_a_passkey_is_created_and_signs_in(visitor: Visitor) -> None:
    device = await VirtualAuthenticator.plug_in(visitor.page)
    await create_a_passkey(visitor, name="My laptop")
    assert len(await device.passkeys()) == 1
    await visitor.page.context.clear_cookies()
    await demand(visitor, PHR)
    assert (await visitor.is_back())["code"], "the browser offers it for the field"
    await visitor.page.context.clear_cookies()
    await device.answers(False)
    await demand(visitor, PHR)
    await visitor.sees("Sign in")
    await device.answers(True)
    await visitor.press("Sign in with a passkey")
    assert (await visitor.is_back())["code"]


async def test_a_passkey_is_used_by_the_keyboard_alone_and_after_a_failure(visitor: Visitor) -> None:
    page, device = visitor.page, await VirtualAuthenticator.plug_in(visitor.page)
    await create_a_passkey(visitor)
    await page.context.clear_cookies()
    await device.verifies(False)
    await demand(visitor)
    await visitor.sign_in()
    await visitor.sees("Confirm that it is you")
    await tabbed_to(page, page.get_by_role("button", name="Use a passkey"))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("The passkey was not accepted. Try again, or use another way.")
    await device.verifies(True)
    await page.keyboard.press("Enter")
    assert (await visitor.is_back())["code"]


async def test_a_second_device_gets_a_passkey_and_each_only_one(visitor: Visitor) -> None:
    page, first = visitor.page, await VirtualAuthenticator.plug_in(visitor.page)
    await create_a_passkey(visitor)
    await first.unplug()
    second = await VirtualAuthenticator.plug_in(visitor.page)
    await demand(visitor, None, action="add-passkey")
    await visitor.sees("Create a passkey")
    await expect(page.get_by_label("Code from the mail")).to_have_count(0)
    await visitor.press("Create a passkey")
    assert (await visitor.is_back())["code"]
    assert len(await second.passkeys()) == 1
    await demand(visitor, None, action="add-passkey")
    await visitor.press("Create a passkey")
    await expect(page.get_by_role("alert")).to_have_text(
        "This device has a passkey for your account already. Use another device."
    )
    await visitor.press("Cancel and return to Order desk")
    assert (await visitor.is_back())["error"] == "access_denied"


async def test_a_recovery_code_replaces_a_lost_device_once(visitor: Visitor) -> None:
    page, device = visitor.page, await VirtualAuthenticator.plug_in(visitor.page)
    codes = await create_a_passkey(visitor)
    await device.unplug()
    for used, heading in ((False, BACK), (True, "Confirm that it is you")):
        await page.context.clear_cookies()
        await demand(visitor)
        await visitor.sign_in()
        await visitor.sees("Confirm that it is you")
        await page.get_by_text("Lost your device?").click()
        await page.get_by_label("One of your recovery codes").fill(codes[0].lower())
        await visitor.press("Use the recovery code")
        await visitor.sees(heading)
        assert await page.get_by_role("alert").count() == used


async def test_who_demands_a_passkey_gets_a_new_one_after_a_recovery_code(visitor: Visitor) -> None:
    page, lost = visitor.page, await VirtualAuthenticator.plug_in(visitor.page)
    codes = await create_a_passkey(visitor)
    await lost.unplug()
    await VirtualAuthenticator.plug_in(visitor.page)
    await page.context.clear_cookies()
    await demand(visitor, PHR)
    await visitor.sign_in()
    await page.get_by_text("Lost your device?").click()
    await page.get_by_label("One of your recovery codes").fill(codes[0])
    await visitor.press("Use the recovery code")
    await visitor.sees("Protect your account")
    await page.get_by_role("link", name="Create a passkey").click()
    await visitor.press("Create a passkey")
    assert (await visitor.is_back())["code"]


@pytest.fixture
def required(site: ApplicationSite) -> Iterator[Callable[[], None]]:
    """Turns the policy on; it is as before after the test."""
    world = site.world

    def change(policy: Literal["optional", "required"]) -> None:
        world.management.sign_in_policy.update(second_factor=policy)
        world.caught_up()

    yield lambda: change("required")
    change("optional")


async def test_a_policy_that_is_turned_on_meets_who_is_signed_in(
    visitor: Visitor, required: Callable[[], None]
) -> None:
    page = visitor.page
    await demand(visitor)
    await visitor.sign_in()
    await visitor.is_back()
    required()
    await demand(visitor, None, prompt="none")
    assert (await visitor.is_back())["error"] == "login_required"
    await demand(visitor)
    await visitor.sees("Protect your account")
    await VirtualAuthenticator.plug_in(visitor.page)
    code = await mailed_code(visitor)
    await page.get_by_role("link", name="Create a passkey").click()
    await page.get_by_label("Code from the mail").fill("WRONG-CODE")
    await visitor.press("Create a passkey")
    await expect(page.get_by_role("alert")).to_contain_text("is not right, or no longer valid")
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Create a passkey")
    await visitor.sees("Keep your recovery codes")
    await page.get_by_role("link", name="I have kept them: continue").click()
    assert (await visitor.is_back())["code"]


async def test_every_page_of_factors_is_accessible(visitor: Visitor, inspector: Inspector) -> None:
    page = visitor.page
    await VirtualAuthenticator.plug_in(visitor.page)
    await demand(visitor, MFA)
    await inspector.inspect(page, "sign-in with a passkey")
    await visitor.sign_in()
    await visitor.sees("Protect your account")
    await inspector.inspect(page, "set-up")
    code = await mailed_code(visitor)
    await inspector.inspect(page, "set-up, code sent")
    await page.get_by_role("link", name="Create a passkey").click()
    await visitor.sees("Create a passkey")
    await inspector.inspect(page, "set-up of a passkey")
    await page.get_by_role("link", name="Another way").click()
    await page.get_by_role("link", name="Set up an authenticator app").click()
    await visitor.sees("Set up an authenticator app")
    await inspector.inspect(page, "set-up of an authenticator app")
    app = AuthenticatorApp(await page.locator("code.key").inner_text())
    await page.get_by_label("Code in your authenticator app").fill(app.code())
    await page.get_by_label("Code from the mail").fill("WRONG-CODE")
    await visitor.press("Set up")
    await page.get_by_role("alert").wait_for()
    await inspector.inspect(page, "set-up of an authenticator app, refused")
    await page.get_by_label("Code in your authenticator app").fill(app.code())
    await page.get_by_label("Code from the mail").fill(code)
    await visitor.press("Set up")
    await visitor.sees("Keep your recovery codes")
    await inspector.inspect(page, "recovery codes")
    await page.get_by_role("link", name="I have kept them: continue").click()
    await visitor.is_back()
    await demand(visitor, None, action="new-recovery-codes")
    await visitor.sees("New recovery codes")
    await inspector.inspect(page, "new recovery codes")
    await page.context.clear_cookies()
    await page.set_extra_http_headers({"Accept-Language": "de"})
    await demand(visitor, MFA)
    await page.get_by_label("Benutzername, E-Mail oder Telefon").fill(visitor.person.username)
    await page.get_by_label("Passwort").fill(PASSWORD)
    await visitor.press("Anmelden")
    await visitor.sees("Bestätigen Sie, dass Sie es sind")
    await page.get_by_text("Gerät verloren?").click()
    await inspector.inspect(page, "another factor, in German")


async def test_the_account_page_leads_to_a_passkey_and_back(visitor: Visitor) -> None:
    page, account = visitor.page, f"{visitor.site.world.stack.base_url}/account/factors"
    device = await VirtualAuthenticator.plug_in(visitor.page)
    await page.goto(account)
    await visitor.sign_in()
    await visitor.sees("Passkeys and second factors")
    await page.get_by_role("link", name="Add a passkey").click()
    await visitor.sees("Create a passkey")
    code = await mailed_code(visitor)
    await page.get_by_label("Code from the mail").fill(code)
    await page.get_by_label("Name of the passkey").fill("My laptop")
    await visitor.press("Create a passkey")
    await visitor.sees("Keep your recovery codes")
    await page.get_by_role("link", name="I have kept them: continue").click()
    await visitor.sees("Passkeys and second factors")
    await expect(page.get_by_role("row").filter(has_text="My laptop")).to_be_visible()
    assert (page.url, len(await device.passkeys())) == (account, 1)


async def test_an_administrator_helps_who_has_lost_every_device(
    visitor: Visitor, browser: Browser, inspector: Inspector
) -> None:
    """Factors are reset in the console, by the keyboard; a code that is passed on leads to a new passkey."""
    page, world, user_id = visitor.page, visitor.site.world, visitor.person.user_id
    lost = await VirtualAuthenticator.plug_in(page)
    await create_a_passkey(visitor)
    await lost.unplug()
    world.management.users.update(user_id, is_email_verified=False)
    administrator = Administrator(world.stack, "all")
    async with await browser.new_context() as context:
        desk = await context.new_page()
        await desk.goto(f"{world.stack.base_url}{CONSOLE}/users/{user_id}")
        await desk.get_by_label("User name, e-mail or phone").fill(administrator.username)
        await desk.get_by_label("Password").fill(PASSWORD)
        await desk.keyboard.press("Enter")
        await tabbed_to(desk, desk.get_by_role("link", name="Reset", exact=True))
        await desk.keyboard.press("Enter")
        await inspector.inspect(desk, "console-factors-reset")
        await tabbed_to(desk, desk.get_by_label("Reason"))
        await desk.keyboard.type("A lost phone.")
        await desk.keyboard.press("Enter")
        await tabbed_to(desk, desk.get_by_role("link", name="Code to set up the first"))
        await desk.keyboard.press("Enter")
        await tabbed_to(desk, desk.get_by_role("button", name="Create a code"))
        await desk.keyboard.press("Enter")
        code = await desk.locator("#secret").inner_text()
        await inspector.inspect(desk, "console-enrolment-code")

    world.stack.recorder.keep(code, "enrolment code")
    await demand(visitor, PHR)
    await visitor.sign_in()
    await visitor.sees("Protect your account")
    await expect(page.get_by_text("Ask your administrator for a code.")).to_be_visible()
    new = await VirtualAuthenticator.plug_in(page)
    await page.get_by_role("link", name="Create a passkey").click()
    await page.get_by_label("Code from the mail or your administrator").fill(code)
    await visitor.press("Create a passkey")
    await visitor.sees("Keep your recovery codes")
    await page.get_by_role("link", name="I have kept them: continue").click()
    assert (await visitor.is_back())["code"]
    assert len(await new.passkeys()) == 1
