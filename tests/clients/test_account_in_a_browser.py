"""The account page in a real browser: every page by axe-core, by the keyboard alone, and all of it in one walk."""

from __future__ import annotations

import re
import secrets

import pytest
from playwright.async_api import Page, expect

from tests.support.administrator import ACCOUNT, Administrator
from tests.support.at_a_browser import PASSWORD, Person, callback
from tests.support.at_a_browser import application as new_application
from tests.support.browser import Inspector, VirtualAuthenticator, tabbed_to
from tests.support.factors import AuthenticatorApp
from tests.support.lengths import length
from tests.support.mailed_links import mails_of
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.clients

HOSTILE = "<img src=x onerror=alert(1)> عبد"
LONG = "x" * 120


async def signed_in(page: Page, person: Administrator, path: str = ACCOUNT) -> None:
    await page.goto(f"{person.stack.base_url}{path}")
    await page.get_by_label("User name, e-mail or phone").fill(person.username)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(f"{person.stack.base_url}{path}")


async def test_every_page_of_an_account_is_accessible(page: Page, world: World, inspector: Inspector) -> None:
    stack, consenting = world.stack, Person(world)
    person = Administrator(stack)
    person.username, person.user_id = consenting.username, consenting.user_id
    stack.management.users.update(person.user_id, name=HOSTILE + LONG, primary_email=f"{LONG[:40]}@example.com")
    partner = new_application(world, "SPA", third_party=True)
    stack.management.applications.update(partner.id, name=HOSTILE + LONG)
    consent = consenting.follow(consenting.sign_in(consenting.follow(consenting.authorize(partner))))
    assert "code" in callback(consenting.send(consent, decision="allow"))
    for reason in (HOSTILE, LONG):
        stack.exchange(
            stack.management.subject_tokens.create(person.user_id, {"reason": reason}).token, scope=["openid"]
        )
    eventually(lambda: len(list(stack.management.impersonations.list(user_id=person.user_id))) == 2)
    await signed_in(page, person)
    for language in ("en", "de")[: length(short=1, long=2)]:
        await page.set_extra_http_headers({"Accept-Language": language})
        for name, path in {
            "profile": "",
            "edit": "/edit",
            "password": "/password",
            "email": "/email",
            "sessions": "/sessions",
            "applications": "/applications",
            "withdrawal": f"/applications/{partner.id}",
            "impersonations": "/impersonations",
            "not-found": "/nothing",
        }.items():
            await page.goto(f"{stack.base_url}{ACCOUNT}{path}")
            assert await page.locator("html").get_attribute("lang") == language
            await inspector.inspect(page, f"account-{name}-{language}")


async def test_a_profile_is_changed_by_the_keyboard_alone(page: Page, world: World) -> None:
    person, name = Administrator(world.stack, name="Ada"), f"Ada {secrets.token_hex(4)}"
    await signed_in(page, person)
    await tabbed_to(page, page.get_by_role("link", name="Edit", exact=True))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{ACCOUNT}/edit")
    await tabbed_to(page, page.get_by_label("Name", exact=True))
    await page.keyboard.press("ControlOrMeta+a")
    await page.keyboard.type(name)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").first).to_contain_text("Saved.")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    await tabbed_to(page, page.get_by_role("button", name="Sign out"))
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/oidc/session/end"))


async def test_an_address_a_session_and_a_consent_are_changed_by_the_keyboard_alone(page: Page, world: World) -> None:
    partner = new_application(world, "SPA", third_party=True)
    consenting = Person(world)
    consent = consenting.follow(consenting.sign_in(consenting.follow(consenting.authorize(partner))))
    assert "code" in callback(consenting.send(consent, decision="allow"))
    person = Administrator(world.stack)
    person.username, person.user_id = consenting.username, consenting.user_id
    done, address = page.get_by_role("status").first, f"{secrets.token_hex(4)}@id.test"
    await signed_in(page, person)

    await tabbed_to(page, page.get_by_role("link", name="Add an e-mail address"))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{ACCOUNT}/email")
    await tabbed_to(page, page.get_by_label("E-mail", exact=True))
    await page.keyboard.type(address)
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text(f"A link is on its way to {address}.")

    await tabbed_to(page, page.get_by_role("link", name="Sessions", exact=True))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{ACCOUNT}/sessions")
    await tabbed_to(page, page.get_by_role("button", name=re.compile("^End ")))
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("You are signed out there.")
    await expect(page.get_by_role("main")).to_contain_text("this one")

    await tabbed_to(page, page.get_by_role("link", name="Applications", exact=True))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{ACCOUNT}/applications")
    await tabbed_to(page, page.get_by_role("link", name=re.compile("^Withdraw ")))
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{ACCOUNT}/applications/{partner.id}")
    await tabbed_to(page, page.get_by_role("button", name="Withdraw", exact=True))
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("The application may no longer act for you.")
    await expect(page.locator(f'a[href="{ACCOUNT}/applications/{partner.id}"]')).to_have_count(0)


async def test_all_of_an_account_in_one_walk(page: Page, world: World, inspector: Inspector) -> None:
    """Factors, a new address by its mailed link, sessions, consents, impersonations, and the language."""
    stack, elsewhere = world.stack, Person(world)
    partner = new_application(world, "SPA", third_party=True, name=f"Partner {elsewhere.username}")
    consent = elsewhere.follow(elsewhere.sign_in(elsewhere.follow(elsewhere.authorize(partner))))
    assert "code" in callback(elsewhere.send(consent, decision="allow"))
    asked = stack.management.subject_tokens.create(elsewhere.user_id, {"reason": "A payment was booked twice."})
    stack.exchange(asked.token, scope=["openid"])
    code = stack.management.users.create_enrolment_code(elsewhere.user_id).code
    person = Administrator(stack)
    person.username, person.user_id = elsewhere.username, elsewhere.user_id
    done, rows = page.get_by_role("status").first, page.locator("main tbody tr")
    await VirtualAuthenticator.plug_in(page)
    await signed_in(page, person, f"{ACCOUNT}/factors")

    await page.get_by_role("link", name="Add a passkey").click()
    await page.get_by_label("Code from the mail or your administrator").fill(code)
    await page.get_by_role("button", name="Create a passkey").click()
    await expect(page.locator(".codes code")).to_have_count(10)
    codes = await page.locator(".codes code").all_inner_texts()
    await page.get_by_role("link", name="I have kept them: continue").click()
    await page.get_by_role("link", name="Rename").click()
    await inspector.inspect(page, "account-factor-name")
    await page.get_by_label("Name", exact=True).fill("My laptop")
    await page.keyboard.press("Enter")
    await expect(rows.filter(has_text="My laptop")).to_have_count(1)
    await page.get_by_role("link", name="Set up an authenticator app").click()
    app = AuthenticatorApp((await page.locator("code.key").inner_text()).replace(" ", ""))
    await page.get_by_label("Code in your authenticator app").fill(app.code())
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(2)
    await inspector.inspect(page, "account-factors")
    await page.get_by_role("link", name="Get new recovery codes").click()
    await page.get_by_role("button", name="Make new codes").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Keep your recovery codes")
    assert set(await page.locator(".codes code").all_inner_texts()).isdisjoint(codes)
    await page.get_by_role("link", name="I have kept them: continue").click()
    await rows.filter(has_text="My laptop").get_by_role("link", name="Remove").click()
    await inspector.inspect(page, "account-factor-removal")
    await page.get_by_role("button", name="Remove").click()
    await expect(done).to_contain_text("Removed.")
    await expect(rows).to_have_count(1)

    address = f"{secrets.token_hex(4)}@id.test"
    await page.goto(f"{stack.base_url}{ACCOUNT}/email")
    await page.get_by_label("E-mail", exact=True).fill(address)
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text(f"A link is on its way to {address}.")
    (link,) = [mail.values["link"] for mail in await mails_of(stack._stack.management) if mail.recipient == address]
    stack.recorder.keep(link.partition("?link=")[2], "mailed link")
    await page.goto(f"{stack.base_url}{link}")
    await inspector.inspect(page, "verification")
    await page.get_by_role("button", name="Confirm").click()
    await inspector.inspect(page, "verified")
    await page.goto(f"{stack.base_url}{ACCOUNT}")
    await expect(page.get_by_role("main")).to_contain_text(re.compile(f"{address}\\s+confirmed"))

    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name=re.compile("^End ")).click()
    await expect(done).to_contain_text("You are signed out there.")
    await expect(rows).to_have_count(1)
    await page.get_by_role("link", name="Applications", exact=True).click()
    await page.get_by_role("link", name=re.compile("^Withdraw ")).click()
    await page.get_by_role("button", name="Withdraw").click()
    await expect(done).to_contain_text("The application may no longer act for you.")
    await page.get_by_role("link", name="Who acted as you").click()
    await page.locator("main summary").click()
    await page.get_by_label("Reason (optional)").fill("I never asked.")
    await page.keyboard.press("Enter")
    await expect(done).to_contain_text("This has ended")
    eventually(lambda: stack.management.impersonations.get(asked.impersonation_id).end_reason == "I never asked.")

    await page.goto(f"{stack.base_url}{ACCOUNT}/edit")
    await page.get_by_label("Language").select_option("de")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("html")).to_have_attribute("lang", "de")
    await page.get_by_role("link", name="Sitzungen", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sitzungen")
