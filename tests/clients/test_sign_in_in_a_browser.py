"""Sign-in, consent and sign-out in a real browser."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Iterator
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.async_api import Browser, expect

from stead import OAuthError, SignInRequired
from tests.support.at_a_browser import PASSWORD
from tests.support.browser import BACK, ORGANIZATIONS, PHONE, ApplicationSite, Inspector, Visitor
from tests.support.mailed_links import mails_of
from tests.support.world import World

pytestmark = pytest.mark.clients


async def test_a_user_signs_in_and_out(visitor: Visitor, site: ApplicationSite) -> None:
    with site.client(site.ours, "read:orders") as client:
        await visitor.open(client)
        await visitor.sees("Sign in")
        await visitor.sign_in()
        await visitor.is_back()
        assert client.handle_callback(visitor.page.url)["sub"] == visitor.person.user_id
        await visitor.page.goto(client.sign_out_url(site.goodbye))
        assert visitor.page.url == site.goodbye
        await visitor.open(client)
        await visitor.sees("Sign in")


@pytest.mark.parametrize("method", ["get", "post"])
async def test_a_form_of_another_site_signs_out(visitor: Visitor, site: ApplicationSite, method: str) -> None:
    """Chromium sends a form of another site without the session (``SameSite=Lax``) if it is posted."""
    fields = {"client_id": site.ours, "post_logout_redirect_uri": site.goodbye}
    inputs = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields.items())
    action = f"{site.world.stack.issuer}/session/end"
    site.pages["/leave"] = f'<form method="{method}" action="{action}">{inputs}<button>Leave</button></form>'
    await visitor.open(site.client(site.ours))
    await visitor.sign_in()
    await visitor.is_back()
    await visitor.page.goto(f"{site.origin}/leave")
    await visitor.press("Leave")
    await visitor.sees("Sign out?")
    await visitor.press("Sign out")
    await expect(visitor.page).to_have_url(site.goodbye)
    await visitor.open(site.client(site.ours))
    await visitor.sees("Sign in")


async def test_a_wrong_password_is_reported_and_the_right_one_still_works(
    visitor: Visitor, site: ApplicationSite
) -> None:
    await visitor.open(site.client(site.ours))
    await visitor.sign_in("not this one")
    await expect(visitor.page.get_by_role("alert")).to_have_text("The name or the password is not right.")
    name, password = (visitor.page.get_by_label(label) for label in ("User name, e-mail or phone", "Password"))
    await expect(name).to_have_value(visitor.person.username)
    await expect(password).to_have_value("")
    await expect(password).to_be_focused()
    await expect(password).to_have_accessible_description("The name or the password is not right.")
    await password.fill(PASSWORD)
    await visitor.press("Sign in")
    assert (await visitor.is_back())["code"]


async def test_a_password_of_the_greatest_length_can_be_typed(visitor: Visitor, site: ApplicationSite) -> None:
    longest = "\U0001f511" * 256  # a browser counts 512
    site.world.management.users.set_password(visitor.person.user_id, longest)
    await visitor.open(site.client(site.ours))
    await visitor.page.get_by_label("User name, e-mail or phone").fill(visitor.person.username)
    await visitor.page.get_by_label("Password").focus()
    await visitor.page.keyboard.insert_text(longest)
    await visitor.press("Sign in")
    assert (await visitor.is_back())["code"]


async def test_cancelling_returns_without_a_code(visitor: Visitor, site: ApplicationSite) -> None:
    await visitor.open(site.client(site.ours))
    await visitor.press("Cancel and return to Order desk")
    back = await visitor.is_back()
    assert (back["error"], "code" in back) == ("access_denied", False)


async def test_a_partner_asks_for_consent_and_again_for_new_scopes(visitor: Visitor, site: ApplicationSite) -> None:
    page = visitor.page
    client = site.client(site.partner, "read:orders")
    await visitor.open(client)
    await visitor.sign_in()
    await visitor.sees("Allow access?")
    await expect(page.get_by_role("listitem").filter(has_text="read:orders")).to_contain_text(
        "See your orders and where they are"
    )
    await expect(page.get_by_text("new", exact=True)).to_have_count(0)
    await visitor.press("Allow")
    await visitor.is_back()
    client.handle_callback(page.url)
    await visitor.open(client)
    await visitor.is_back()

    more = site.client(site.partner, "read:orders", "write:orders")
    await visitor.open(more)
    await visitor.sees("Allow access?")
    await expect(page.get_by_role("listitem").filter(has=page.get_by_text("new", exact=True))).to_contain_text(
        ["write:orders"]
    )
    await visitor.press("Allow")
    await visitor.is_back()
    assert more.handle_callback(page.url)["sub"] == visitor.person.user_id


async def test_a_partner_that_is_denied_gets_nothing_and_may_ask_again(visitor: Visitor, site: ApplicationSite) -> None:
    client = site.client(site.partner, "read:orders")
    await visitor.open(client)
    await visitor.sign_in()
    await visitor.press("Deny")
    await visitor.is_back()
    with pytest.raises(SignInRequired) as refused:
        client.handle_callback(visitor.page.url)
    assert refused.value.reason == "access_denied"
    await visitor.open(client)
    await visitor.sees("Allow access?")


async def test_a_partner_gets_the_organizations_that_are_ticked(
    world: World, visitor: Visitor, site: ApplicationSite
) -> None:
    chosen, other = (world.management.organizations.create(name).id for name in ("Harbour Lights", "Quiet Garden"))
    for organization in (chosen, other):
        world.management.organizations.add_users(organization, [visitor.person.user_id])
    world.caught_up()
    client = site.client(site.partner, ORGANIZATIONS, site.permission)
    await visitor.open(client)
    await visitor.sign_in()
    await expect(visitor.page.get_by_role("group", name="In which organizations?")).to_be_visible()
    await visitor.page.get_by_label("Harbour Lights").check()
    await visitor.press("Allow")
    await visitor.is_back()
    client.handle_callback(visitor.page.url)
    assert client.get_organization_token(chosen)
    with pytest.raises(OAuthError) as refused:
        client.get_organization_token(other)
    assert refused.value.error == "access_denied"


async def member_of(visitor: Visitor, *names: str) -> None:
    """Make the visitor a member of new organizations with these names."""
    organizations = visitor.site.world.management.organizations
    for name in names:
        organizations.add_users(organizations.create(name).id, [visitor.person.user_id])
    visitor.site.world.caught_up()


async def test_allow_is_in_view_on_a_phone_whatever_the_number_of_organizations(
    browser: Browser, site: ApplicationSite
) -> None:
    for has_scripts in (True, False):
        async with await browser.new_context(java_script_enabled=has_scripts, viewport=PHONE) as context:
            visitor = Visitor(await context.new_page(), site)
            await member_of(visitor, *(f"Organization {number}" for number in range(16)))
            await visitor.open(site.client(site.partner, "read:orders", ORGANIZATIONS, site.permission))
            await visitor.sign_in()
            await visitor.sees("Allow access?")
            for button in ("Allow", "Deny"):
                await expect(visitor.page.get_by_role("button", name=button)).to_be_in_viewport(ratio=1)
            await visitor.press("Select all")
            await expect(visitor.page.get_by_role("checkbox", checked=True)).to_have_count(16)


async def test_organizations_are_searched_and_selected(visitor: Visitor, site: ApplicationSite) -> None:
    page = visitor.page
    await member_of(visitor, "Harbour Lights", "Brasserie Zürichsee", "Old Mill Bakery")
    await visitor.open(site.client(site.partner, ORGANIZATIONS, site.permission))
    await visitor.sign_in()
    ticked = page.get_by_role("checkbox", checked=True)
    await page.get_by_label("Search").fill("zurich")
    await expect(page.get_by_role("checkbox")).to_have_count(1)
    await visitor.press("Select all")
    await page.get_by_label("Search").press("Enter")
    await visitor.sees("Allow access?")
    await expect(page.get_by_role("link", name="Organizations selected: 1 of 3")).to_be_visible()
    await page.get_by_label("Search").fill("nowhere")
    await expect(page.get_by_text("No organization has this in its name.")).to_be_visible()
    await page.get_by_label("Search").fill("")
    await expect(page.get_by_role("checkbox")).to_have_count(3)
    await expect(ticked).to_have_count(1)
    await visitor.press("Select all")
    await expect(page.get_by_role("link", name="Organizations selected: 3 of 3")).to_be_visible()
    await visitor.press("Select none")
    await expect(ticked).to_have_count(0)
    await page.get_by_label("Old Mill Bakery").check()
    await visitor.press("Allow")
    await visitor.is_back()
    (consent,) = site.world.management.users.consents(visitor.person.user_id)
    assert len(consent.organization_ids) == 1


async def test_the_password_is_shown_on_request_and_sent_hidden(visitor: Visitor, site: ApplicationSite) -> None:
    await visitor.open(site.client(site.ours))
    password = visitor.page.get_by_label("Password")
    await password.fill("not this one")
    toggle = visitor.page.get_by_role("button", name="Show password")
    for kind, is_pressed in (("text", "true"), ("password", "false"), ("text", "true")):
        await toggle.click()
        await expect(password).to_have_attribute("type", kind)
        await expect(toggle).to_have_attribute("aria-pressed", is_pressed)
    sent = "document.forms[0].addEventListener('submit', (event) => { event.preventDefault(); })"
    await visitor.page.evaluate(sent)
    await visitor.page.get_by_label("User name, e-mail or phone").fill(visitor.person.username)
    await visitor.press("Sign in")
    await expect(password).to_have_attribute("type", "password")


async def test_another_person_signs_in_at_the_consent_page(
    world: World, visitor: Visitor, site: ApplicationSite
) -> None:
    client = site.client(site.partner, "read:orders")
    await visitor.open(client)
    await visitor.sign_in()
    await visitor.press("Not you?")
    await visitor.sees("Sign in")
    other = Visitor(visitor.page, site)
    await other.sign_in()
    await other.press("Allow")
    await other.is_back()
    assert client.handle_callback(visitor.page.url)["sub"] == other.person.user_id


async def test_a_session_ends_with_the_browser_unless_the_user_keeps_it(
    visitor: Visitor, site: ApplicationSite
) -> None:
    for is_kept in (False, True):
        await visitor.open(site.client(site.ours), "login")
        remember = visitor.page.get_by_role("checkbox", name="Keep me signed in")
        await expect(remember).not_to_be_checked()
        await remember.set_checked(is_kept)
        await visitor.sign_in()
        await visitor.is_back()
        cookies = await visitor.page.context.cookies(site.world.stack.base_url)
        (expires,) = (each["expires"] for each in cookies if each["name"] == "identity-session")
        assert (expires > 0) == is_kept


async def test_the_page_after_signing_out_leads_back_to_the_application(
    world: World, visitor: Visitor, site: ApplicationSite
) -> None:
    await visitor.page.goto(f"{world.stack.issuer}/session/end?client_id={site.ours}")
    await visitor.sees("You are signed out")
    await visitor.page.get_by_role("link", name="Go to Order desk").click()
    await visitor.sees(BACK)
    assert visitor.page.url == f"{site.origin}/"


async def test_the_logo_and_the_colour_of_the_application_are_shown(visitor: Visitor, site: ApplicationSite) -> None:
    await visitor.finds_the_logo()
    await visitor.open(site.client(site.branded))
    shown = "document.querySelector('img').naturalWidth"
    assert await visitor.page.evaluate(shown) == 240
    accent = "getComputedStyle(document.querySelector('button[type=submit]')).backgroundColor"
    assert await visitor.page.evaluate(accent) == "rgb(107, 29, 140)"


async def test_two_tabs_are_two_sign_ins(visitor: Visitor, site: ApplicationSite) -> None:
    second = Visitor(await visitor.page.context.new_page(), site, visitor.person)
    clients = [site.client(site.ours) for _ in range(2)]
    for each, client in zip((visitor, second), clients, strict=True):
        await each.open(client)
    await second.sign_in()
    await second.is_back()
    await visitor.sign_in()
    await visitor.is_back()
    for each, client in zip((visitor, second), clients, strict=True):
        assert client.handle_callback(each.page.url)["sub"] == visitor.person.user_id


async def test_reloading_another_tab_completes_its_sign_in(visitor: Visitor, site: ApplicationSite) -> None:
    second = Visitor(await visitor.page.context.new_page(), site, visitor.person)
    for each in (visitor, second):
        await each.open(site.client(site.ours))
    await second.sign_in()
    await second.is_back()
    await visitor.page.reload()
    assert (await visitor.is_back())["code"]


async def test_the_back_button_leads_to_a_page_that_says_start_again(visitor: Visitor, site: ApplicationSite) -> None:
    """No page comes from a cache, and none issues a second code."""
    await visitor.open(site.client(site.partner, "read:orders"))
    await visitor.sign_in()
    await visitor.press("Allow")
    await visitor.is_back()
    await visitor.page.go_back()
    await visitor.sees("Start again")
    await visitor.page.go_back()
    await visitor.sees("Start again")


async def test_a_page_that_was_left_open_too_long_says_so(
    world: World, visitor: Visitor, site: ApplicationSite
) -> None:
    await visitor.open(site.client(site.ours))
    request = dict(parse_qsl(urlsplit(visitor.page.url).query))["request"]
    key = f"identity:default:pending-authorization:{hashlib.sha256(request.encode()).hexdigest()}"
    assert world.redis.delete(key) == 1
    await visitor.sign_in()
    await visitor.sees("Start again")


async def test_signing_out_without_an_id_token_hint_asks_first(
    world: World, visitor: Visitor, site: ApplicationSite
) -> None:
    client = site.client(site.ours)
    await visitor.open(client)
    await visitor.sign_in()
    await visitor.is_back()
    await visitor.page.goto(f"{world.stack.issuer}/session/end?client_id={site.ours}")
    await visitor.sees("Sign out?")
    await visitor.press("Sign out")
    await visitor.sees("You are signed out")
    await visitor.open(client)
    await visitor.sees("Sign in")


async def test_everything_works_without_scripts(browser: Browser, world: World, site: ApplicationSite) -> None:
    async with await browser.new_context(java_script_enabled=False) as context:
        visitor = Visitor(await context.new_page(), site)
        client = site.client(site.partner, "read:orders")
        await visitor.open(client)
        await visitor.sign_in("not this one")
        await expect(visitor.page.get_by_role("alert")).to_be_visible()
        await visitor.sign_in()
        await visitor.press("Allow")
        await visitor.is_back()
        assert client.handle_callback(visitor.page.url)["sub"] == visitor.person.user_id
        await visitor.page.goto(f"{world.stack.issuer}/session/end")
        await visitor.press("Sign out")
        await visitor.sees("You are signed out")


async def test_everything_works_with_the_keyboard(world: World, visitor: Visitor, site: ApplicationSite) -> None:
    organization = world.management.organizations.create("Harbour Lights").id
    world.management.organizations.add_users(organization, [visitor.person.user_id])
    world.caught_up()
    client = site.client(site.partner, "read:orders", ORGANIZATIONS, site.permission)
    keyboard = visitor.page.keyboard
    await visitor.open(client)
    await expect(visitor.page.get_by_label("User name, e-mail or phone")).to_be_focused()
    await keyboard.type(visitor.person.username)
    await keyboard.press("Tab")
    await keyboard.type(PASSWORD)
    await keyboard.press("Enter")
    await visitor.sees("Allow access?")
    await keyboard.press("Tab")
    await expect(visitor.page.get_by_role("button", name="Not you?")).to_be_focused()
    await keyboard.press("Tab")
    await expect(visitor.page.get_by_label("Harbour Lights")).to_be_focused()
    await keyboard.press("Space")
    await keyboard.press("Tab")
    await expect(visitor.page.get_by_role("link", name="Organizations selected: 1 of 1")).to_be_focused()
    await keyboard.press("Tab")
    await expect(visitor.page.get_by_role("button", name="Allow")).to_be_focused()
    await keyboard.press("Enter")
    await visitor.is_back()
    client.handle_callback(visitor.page.url)
    assert client.get_organization_token(organization)


async def test_no_site_can_embed_a_page_in_a_frame(browser: Browser, site: ApplicationSite) -> None:
    """Clickjacking: the headers make the browser refuse the frame."""
    address = site.client(site.ours).sign_in_url(site.redirect_uri)
    site.pages["/frame"] = f'<!doctype html><title>A frame</title><iframe src="{address}"></iframe>'
    async with await browser.new_context() as context:
        page = await context.new_page()
        async with page.expect_event("requestfailed") as blocked:
            await page.goto(f"{site.origin}/frame")
        request = await blocked.value
        assert (urlsplit(request.url).path, request.failure) == ("/sign-in", "net::ERR_BLOCKED_BY_RESPONSE")


async def test_a_form_of_another_site_finds_the_session(visitor: Visitor, site: ApplicationSite) -> None:
    """Chromium sends no cookies with it (``SameSite=Lax``), and sends them with the redirect that follows."""
    many = [f"{number:03}:".ljust(128, ":") for number in range(300)]
    with site.client(site.ours, "read:orders", *many) as client:
        form = client.sign_in_form(site.redirect_uri, "none")
        fields = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in form.fields)
        site.pages["/start"] = f'<form method="post" action="{form.action}">{fields}<button>Start</button></form>'
        await visitor.open(site.client(site.ours))
        await visitor.sign_in()
        await visitor.is_back()
        await visitor.page.goto(f"{site.origin}/start")
        await visitor.press("Start")
        await visitor.is_back()
        assert client.handle_callback(visitor.page.url)["sub"] == visitor.person.user_id


@pytest.mark.parametrize("chain", ["onward", "to_app"])
async def test_whatever_the_callback_redirects_to_is_reached(
    world: World, visitor: Visitor, site: ApplicationSite, chain: str
) -> None:
    """Chromium applies ``form-action`` to every redirect after a form, the application's own included."""
    callback: str = getattr(site, chain)
    ours, partner = (site.client(each, "read:orders") for each in (site.ours, site.partner))
    sign_out = urlencode({"client_id": site.ours, "post_logout_redirect_uri": callback})

    async def arrives(step: Awaitable[None]) -> None:
        async with visitor.page.expect_request(site.redirects[callback], timeout=30_000):
            await step

    await visitor.page.goto(ours.sign_in_url(callback))
    await arrives(visitor.press("Cancel and return to Order desk"))
    await visitor.page.goto(ours.sign_in_url(callback))
    await arrives(visitor.sign_in())
    for decision in ("Deny", "Allow"):
        await visitor.page.goto(partner.sign_in_url(callback))
        await arrives(visitor.press(decision))
    await visitor.page.goto(f"{world.stack.issuer}/session/end?{sign_out}")
    await arrives(visitor.press("Sign out"))


@pytest.mark.parametrize("address", ["http://127.0.0.1:41999/cb", "http://[::1]:41999/cb", "com.example.app:/cb"])
async def test_the_browser_follows_the_redirect_to_a_native_application(
    world: World, visitor: Visitor, site: ApplicationSite, address: str
) -> None:
    """Nothing listens there, but the request is sent."""
    native = world.management.applications.create(
        name="A native application", type="Native", oidc_client_metadata={"redirectUris": [address]}
    )
    with site.client(native.id) as client:
        await visitor.page.goto(client.sign_in_url(address))
        async with visitor.page.expect_request(lambda request: request.url.startswith(address)) as sent:
            await visitor.sign_in()
        answer = await sent.value
        assert client.handle_callback(answer.url)["sub"] == visitor.person.user_id


@pytest.fixture
def registration(site: ApplicationSite) -> Iterator[None]:
    """All worlds share one policy: registration is off again after the test."""
    site.world.management.sign_in_policy.update(registration="open")
    site.world.caught_up()
    yield
    site.world.management.sign_in_policy.update(registration="off")


@pytest.mark.usefixtures("registration")
@pytest.mark.parametrize("language", ["en", "de"])
async def test_a_person_registers_by_mail_with_the_keyboard(
    visitor: Visitor, site: ApplicationSite, inspector: Inspector, language: str
) -> None:
    page, address = visitor.page, f"new{secrets.token_hex(5)}@id.test"
    english = language == "en"
    await page.set_extra_http_headers({"Accept-Language": language})
    await visitor.finds_the_logo()
    await visitor.open(site.client(site.branded))
    await page.get_by_role("link", name="Register" if english else "Registrieren").press("Enter")
    await visitor.sees("Register" if english else "Registrieren")
    await inspector.inspect(page, "register")
    await page.keyboard.type(address)
    await page.keyboard.press("Enter")
    await visitor.sees("Check your e-mail" if english else "Sehen Sie in Ihr Postfach")
    await inspector.inspect(page, "register-sent")

    mails = await mails_of(site.world.stack._stack.management)
    (link,) = (mail.values["link"] for mail in mails if mail.recipient == address)
    site.world.stack.recorder.keep(link.partition("?link=")[2], "mailed link")
    await page.goto(f"{site.world.stack.base_url}{link}")
    await visitor.sees("Create your account" if english else "Ihr Konto anlegen")
    assert "link=" not in page.url
    await inspector.inspect(page, "registration")
    for number, typed in enumerate(("Ada Lovelace", PASSWORD, "another one")):
        await page.keyboard.type(typed)
        for _ in range(1 if number == 0 else 2):  # past the button that shows the password
            await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("alert").wait_for()
    await inspector.inspect(page, "registration-problem")
    await expect(page.locator("#name")).to_have_value("Ada Lovelace")
    for field in ("#password", "#repeated"):
        await page.locator(field).fill(PASSWORD)
    await page.keyboard.press("Enter")
    await visitor.sees("Allow access?" if english else "Zugriff erlauben?")
    (user,) = site.world.management.users.list(search=address)
    assert (user.name, user.is_email_verified) == ("Ada Lovelace", True)
