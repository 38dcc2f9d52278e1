"""The account page as a browser without scripts sees it: its sign-in, what people change there, and attacks on it."""

from __future__ import annotations

import asyncio
import re
import secrets
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator
from html import unescape
from typing import Any

import asyncpg
import httpx2 as httpx
import pytest
import pytest_asyncio

from console.routes import _ACCOUNT
from stead import Factors
from tests.support.administrator import ACCOUNT, CONSOLE, Administrator, errors, heading, notices
from tests.support.at_a_browser import PASSWORD, Form, Person, callback
from tests.support.at_a_browser import application as new_application
from tests.support.authenticator import Authenticator
from tests.support.factors import AuthenticatorApp, stored_passkey_of
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.queued_mail import QueuedMail
from tests.support.running_stack import RunningStack
from tests.support.waiting import eventually
from tests.support.world import World

FORMS = sorted({each.path for area in _ACCOUNT for each in area.declared if each.is_form})
PAGES = sorted({each.path for area in _ACCOUNT for each in area.declared if not each.is_form and "{" not in each.path})
ANOTHER = "another password of theirs"
NOT_YOURS = {"currentPassword": "Das ist nicht Ihr Passwort."}
LENGTH = {"password": "Das Passwort muss 8 bis 256 Zeichen haben."}


@pytest.fixture
def person(stack: RunningStack) -> Administrator:
    """A user without any role."""
    stack.recorder.keep(ANOTHER, "password")
    return Administrator(stack, name="Ada Lovelace")


def is_signed_in(person: Administrator) -> bool:
    return person.browser.get(ACCOUNT).status_code == 200


def form_of(person: Administrator, path: str = ACCOUNT) -> dict[str, list[str]]:
    """Return the fields that every form of the session has."""
    return person.form(person.opens(path), f"{ACCOUNT}/sign-out")[1]


class TestSigningIn:
    def test_a_user_without_a_role_sees_the_account_and_not_the_console(self, person: Administrator) -> None:
        page = person.opens(ACCOUNT)
        assert (page.status_code, heading(page)) == (200, "<bdi>Ada Lovelace</bdi>")
        assert person.username in page.text
        assert CONSOLE not in re.findall('href="([^"]+)"', page.text)
        assert person.opens(CONSOLE).status_code == 403

    def test_both_sites_have_cookies_of_their_own(self, stack: RunningStack) -> None:
        administrator = Administrator(stack, "all")
        administrator.opens(ACCOUNT)
        administrator.opens(CONSOLE)
        account, console = (administrator.browser.cookies[f"identity-{site}"] for site in ("account", "console"))
        for path, cookies in {
            ACCOUNT: {"identity-account": console, "identity-console": console},
            CONSOLE: {"identity-account": account, "identity-console": account},
        }.items():
            header = "; ".join(f"{name}={value}" for name, value in cookies.items())
            answer = stack.http.get(path, headers={"Cookie": header})
            assert answer.headers["Location"].startswith(f"{stack.base_url}/oidc/auth?"), path

    def test_pages_load_nothing_foreign_and_nothing_inline(self, person: Administrator) -> None:
        page = person.opens(ACCOUNT)
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert (page.headers["X-Frame-Options"], page.headers["Cache-Control"]) == ("DENY", "no-store")
        assert re.findall(r"<script(?![^>]*src=)|\son[a-z]+=|\sstyle=", page.text) == []

    @pytest.mark.parametrize("path", [f"{ACCOUNT}/nothing", f"{ACCOUNT}/edit/x"])
    def test_a_wrong_address_leads_back_to_the_account(self, person: Administrator, path: str) -> None:
        page = person.browser.get(path, headers={"Accept-Language": "de"})
        assert (page.status_code, heading(page)) == (404, "Das gibt es nicht")
        assert f'<a href="{ACCOUNT}">Zurück zu Ihrem Konto</a>' in page.text

    def test_signing_out_ends_the_session_and_its_tokens(self, person: Administrator) -> None:
        page = person.opens(ACCOUNT)
        cookie = person.browser.cookies["identity-account"]
        answer = person.sends(page, f"{ACCOUNT}/sign-out")
        location = httpx.URL(answer.headers["Location"])
        assert location.path == "/oidc/session/end"
        assert location.params["post_logout_redirect_uri"] == f"{person.stack.base_url}{ACCOUNT}"
        person.browser.cookies.set("identity-account", cookie)
        assert not is_signed_in(person)


class TestAnotherAccount:
    @pytest.fixture
    def other(self, stack: RunningStack) -> Administrator:
        return Administrator(stack, name="Grace Hopper")

    def test_after_signing_out_elsewhere_no_page_of_the_account_is_shown(
        self, person: Administrator, other: Administrator
    ) -> None:
        person.opens(ACCOUNT)
        asked = person.browser.get("/oidc/session/end")
        person.sends(asked, "/oidc/session/end")
        person.username = other.username
        page = person.opens(ACCOUNT)
        assert heading(page) == "<bdi>Grace Hopper</bdi>"
        assert "Ada Lovelace" not in page.text

    def test_what_one_user_typed_is_not_shown_to_another_who_signs_in_for_it(
        self, person: Administrator, other: Administrator
    ) -> None:
        person.opens(ACCOUNT)
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        page = person.opens(f"{ACCOUNT}/edit")
        answer = person.sends(page, username=f"typed_by_ada_{secrets.token_hex(3)}")
        person.username = other.username
        page = person.follows(answer)
        assert (page.url.path, heading(page)) == (ACCOUNT, "<bdi>Grace Hopper</bdi>")
        assert notices(page) == [
            "Another user was signed in here before. What that user had typed was not sent, and is not shown."
        ]
        page = person.opens(f"{ACCOUNT}/edit")
        assert (notices(page), person.form(page)[1]["username"]) == ([], [other.username])


class TestTheProfile:
    def test_it_is_changed_and_its_language_is_that_of_the_pages(self, person: Administrator) -> None:
        page = person.opens(f"{ACCOUNT}/edit")
        page = person.follows(person.sends(page, name="Ada, Countess of Lovelace", locale="de"))
        assert (notices(page), heading(page)) == (["Gespeichert."], "<bdi>Ada, Countess of Lovelace</bdi>")
        stored = person.stack.management.users.get(person.user_id)
        assert (stored.name, stored.profile["locale"]) == ("Ada, Countess of Lovelace", "de")
        page = person.follows(person.sends(person.opens(f"{ACCOUNT}/edit"), locale=""))
        assert notices(page) == ["Saved."]
        page = person.follows(person.sends(person.opens(f"{ACCOUNT}/edit")))
        assert notices(page) == ["Nothing was changed."]

    def test_what_the_api_refuses_stands_beside_its_field(self, person: Administrator) -> None:
        taken = person.stack.credentials.administrator.username
        person.browser.headers["Accept-Language"] = "de"
        refused = person.sends(person.opens(f"{ACCOUNT}/edit"), name="Typed", username=taken)
        assert (refused.status_code, errors(refused)) == (422, {"username": "Dieser Benutzername ist vergeben."})
        refused = person.sends(person.opens(f"{ACCOUNT}/edit"), username="")
        assert (refused.status_code, errors(refused)) == (
            422,
            {"username": "Damit melden Sie sich an: Etwas muss bleiben."},
        )
        refused = person.sends(person.opens(f"{ACCOUNT}/edit"), name="x" * 100_000)
        assert (refused.status_code, list(errors(refused))) == (400, ["name"])
        assert person.stack.management.users.get(person.user_id).name == "Ada Lovelace"

    def test_a_user_name_needs_a_recent_sign_in_and_what_was_typed_is_kept_for_it(self, person: Administrator) -> None:
        person.opens(ACCOUNT)
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        username = f"ada_{secrets.token_hex(5)}"
        page = person.follows(person.sends(person.opens(f"{ACCOUNT}/edit"), username=username))
        assert notices(page)[0].startswith("You have signed in again. What you typed is here")
        assert person.stack.management.users.get(person.user_id).username == person.username
        assert person.form(page)[1]["username"] == [username]
        assert notices(person.follows(person.sends(page))) == ["Saved."]
        assert person.stack.management.users.get(person.user_id).username == username


class TestThePassword:
    PATH = f"{ACCOUNT}/password"

    def test_it_is_asked_for_only_after_a_recent_sign_in(self, person: Administrator) -> None:
        person.opens(ACCOUNT)
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        person.opens(ACCOUNT)
        asked = httpx.URL(person.browser.get(self.PATH).headers["Location"])
        assert (asked.params["prompt"], asked.params["login_hint"]) == ("login", person.username)
        assert heading(person.opens(self.PATH)) == "Change password"

    @pytest.mark.parametrize(
        ("typed", "status", "wrong"),
        [
            ({"currentPassword": "not this one", "password": ANOTHER, "repeated": ANOTHER}, 422, NOT_YOURS),
            ({"currentPassword": "", "password": ANOTHER, "repeated": ANOTHER}, 422, NOT_YOURS),
            (
                {"currentPassword": PASSWORD, "password": ANOTHER, "repeated": PASSWORD},
                422,
                {"repeated": "Die beiden Passwörter sind verschieden."},
            ),
            (
                {"currentPassword": PASSWORD, "password": PASSWORD, "repeated": PASSWORD},
                422,
                {"password": "Das ist Ihr jetziges Passwort."},
            ),
            ({"currentPassword": PASSWORD, "password": "short", "repeated": "short"}, 400, LENGTH),
            ({"currentPassword": PASSWORD, "password": "x" * 9000, "repeated": "x" * 9000}, 400, LENGTH),
        ],
    )
    def test_what_is_wrong_changes_nothing_and_no_password_is_shown_again(
        self, person: Administrator, typed: dict[str, str], status: int, wrong: dict[str, str]
    ) -> None:
        person.browser.headers["Accept-Language"] = "de"
        answer = person.sends(person.opens(self.PATH), **typed)
        assert (answer.status_code, errors(answer)) == (status, wrong)
        assert PASSWORD not in answer.text
        assert ANOTHER not in answer.text
        assert is_signed_in(person)

    def test_a_new_one_ends_all_sessions(self, person: Administrator) -> None:
        elsewhere = Administrator(person.stack)
        elsewhere.username = person.username
        elsewhere.opens(ACCOUNT)
        page = person.opens(self.PATH)
        done = person.sends(page, currentPassword=PASSWORD, password=ANOTHER, repeated=ANOTHER)
        assert (done.status_code, heading(done)) == (200, "Your password is set")
        assert not is_signed_in(person)
        eventually(lambda: not is_signed_in(elsewhere))
        person._password = ANOTHER
        assert person.opens(ACCOUNT).status_code == 200


class TestTheEmailAddress:
    PATH = f"{ACCOUNT}/email"

    @pytest.fixture
    def address(self) -> str:
        return f"{secrets.token_hex(5)}@id.test"

    @pytest_asyncio.fixture
    async def mails(self, stack: RunningStack) -> AsyncIterator[QueuedMail]:
        settings = stack._stack.management
        database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
        async with QueuedMail(database, settings.tenant_id, settings.mail_keys) as mails:
            yield mails
        await database.close()

    async def test_a_new_one_counts_once_its_link_is_followed(
        self, person: Administrator, mails: QueuedMail, address: str
    ) -> None:
        assert "Add an e-mail address</a>" in person.opens(ACCOUNT).text
        page = person.follows(person.sends(person.opens(self.PATH), email=f" {address} "))
        assert notices(page) == [
            f"A link is on its way to {address}. Open it within a day, and confirm the address there."
        ]
        assert person.stack.management.users.get(person.user_id).primary_email is None
        (mail,) = await mails.to(address)
        person.stack.recorder.keep(await mails.link(address), "mailed link")
        page = person.opens(mail.values["link"])
        person.browser.post(page.url.path, data=Form(page.text).values)
        page = person.opens(ACCOUNT)
        assert (address in page.text, "confirmed</span>" in page.text) == (True, True)
        assert person.form(person.opens(self.PATH))[1]["email"] == [""]

    async def test_the_present_one_is_confirmed(self, person: Administrator, mails: QueuedMail, address: str) -> None:
        person.stack.management.users.update(person.user_id, primary_email=address)
        assert "not confirmed</span>" in person.opens(ACCOUNT).text
        page = person.opens(self.PATH)
        assert person.form(page)[1]["email"] == [address]
        assert "a new address that you enter. Nothing changes until you open the link" in page.text
        assert person.sends(page).status_code == 303
        assert [mail.kind for mail in await mails.to(address)] == ["email-verification"]

    async def test_it_needs_a_recent_sign_in_and_what_was_typed_is_kept_for_it(
        self, person: Administrator, mails: QueuedMail, address: str
    ) -> None:
        page = person.opens(self.PATH)
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        person.opens(ACCOUNT)
        asked = httpx.URL(person.browser.get(self.PATH).headers["Location"])
        assert asked.params["prompt"] == "login"
        sent = person.browser.post(self.PATH, data={**form_of(person), "email": address})
        page = person.follows(sent)
        assert (page.url.path, person.form(page)[1]["email"]) == (self.PATH, [address])
        assert await mails.to(address) == []
        assert person.sends(page).status_code == 303
        assert [mail.kind for mail in await mails.to(address)] == ["email-verification"]

    @pytest.mark.parametrize("typed", ["", "ada", "ada@", '"><script>alert(1)</script>', "a@b\r\nBcc: c@d", "x" * 9000])
    def test_what_is_not_an_address_stands_beside_the_field(self, person: Administrator, typed: str) -> None:
        refused = person.sends(person.opens(self.PATH), email=typed)
        assert (refused.status_code, list(errors(refused))) == (400, ["email"])
        assert "<script>alert" not in refused.text

    def test_no_address_is_flooded(self, person: Administrator, address: str) -> None:
        page = person.opens(self.PATH)
        sent = [person.sends(page, email=address) for _ in range(5)]
        assert {answer.status_code for answer in sent} == {303, 429}
        assert re.search("Too many attempts. Try again\\s+in [0-9]+ minutes?", sent[-1].text)
        assert person.form(sent[-1])[1]["email"] == [address]


class TestSessions:
    PATH = f"{ACCOUNT}/sessions"

    def test_one_elsewhere_is_named_and_ended(self, person: Administrator) -> None:
        elsewhere = Administrator(person.stack)
        elsewhere.username = person.username
        elsewhere.browser.headers["User-Agent"] = (
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
        )
        elsewhere.opens(ACCOUNT)
        page = person.opens(self.PATH)
        assert page.text.count("this one</span>") == 1
        assert "<span title=" in page.text
        assert "Firefox on Linux" in re.sub("<[^>]+>|[\u2068\u2069]", "", page.text)
        (end,) = re.findall(rf'action="({self.PATH}/[^/"]+/end)"', page.text)
        page = person.follows(person.sends(page, end))
        assert notices(page) == ["You are signed out there. Applications may take a while to notice."]
        eventually(lambda: not is_signed_in(elsewhere))
        assert is_signed_in(person)

    def test_one_of_another_user_stays(self, person: Administrator) -> None:
        other = Administrator(person.stack)
        other.opens(ACCOUNT)
        session = other.browser.cookies["identity-session"].partition(".")[0]
        answer = person.browser.post(f"{self.PATH}/{session}/end", data=form_of(person))
        assert answer.status_code == 404
        assert is_signed_in(other)


class TestSecondFactors:
    PATH = f"{ACCOUNT}/factors"

    def set_up(self, person: Administrator, action: str, **typed: str) -> httpx.Response:
        """Do on the pages of the sign-in what an action asks for, and return the page of the account afterwards."""
        page = person.opens(f"{self.PATH}/set-up/{action}")
        target = next(each for each in re.findall('action="([^"]+)"', page.text) if action.rpartition("-")[2] in each)
        form = Form(page.text[page.text.index(f'action="{target}"') - 30 :])
        if action == "add-authenticator":
            (secret,) = re.findall('<code class="key">([A-Z2-7]+)</code>', page.text)
            typed = {**typed, "current": AuthenticatorApp(secret).code()}
        if action == "add-passkey":
            challenge, user = (
                unescape(*re.findall(f'data-{each}="([^"]*)"', page.text)) for each in ("challenge", "user")
            )
            device = Authenticator(origin=person.stack.base_url)
            credential = device.create(challenge, user_handle=urlsafe_b64decode(user + "=="))
            typed = {**typed, "credential": credential}
        done = person.follows(person.browser.post(form.action, data={**form.values, **typed}))
        if heading(done) == "Keep your recovery codes":
            done = person.opens(unescape(*re.findall('href="([^"]*)">I have kept them: continue', done.text)))
        return done

    def test_they_are_set_up_at_the_sign_in_named_and_removed(self, person: Administrator) -> None:
        empty = person.opens(self.PATH)
        assert "None: your password alone signs you in." in empty.text
        code = person.stack.management.users.create_enrolment_code(person.user_id).code
        page = self.set_up(person, "add-authenticator", enrolment_code=code)
        assert (page.url.path, "10 recovery codes are left." in page.text) == (self.PATH, True)
        assert notices(page) == ["The authenticator app is set up. Its code is asked for after your password."]
        assert "Replace the authenticator app" in page.text
        page = self.set_up(person, "add-passkey", name="<b>Key</b>")
        assert (page.url.path, "&lt;b&gt;Key&lt;/b&gt;" in page.text) == (self.PATH, True)
        assert notices(page) == ["The passkey is set up. You can sign in with it from now on."]

        app, passkey = person.stack.management.users.factors(person.user_id).factors
        renaming = person.opens(f"{self.PATH}/{passkey.id}")
        assert person.form(renaming)[1]["name"] == ["<b>Key</b>"]
        blank = person.sends(renaming, name=" ")
        assert (blank.status_code, blank.url.path) == (422, f"{self.PATH}/{passkey.id}")
        assert notices(person.follows(person.sends(renaming, name="My laptop"))) == ["Saved."]
        assert person.opens(f"{self.PATH}/{app.id}").status_code == 404

        asked = person.opens(f"{self.PATH}/{passkey.id}/remove")
        assert (heading(asked), "My laptop" in asked.text) == ("Remove this passkey?", True)
        assert notices(person.follows(person.sends(asked))) == ["Removed."]
        person.stack.management.sign_in_policy.update(second_factor="required")
        try:
            assert f"{self.PATH}/{app.id}/remove" not in person.opens(self.PATH).text
        finally:
            person.stack.management.sign_in_policy.update(second_factor="optional")
        last = person.opens(f"{self.PATH}/{app.id}/remove")
        assert "It is the last one: your recovery codes go with it" in last.text
        assert notices(person.follows(person.sends(last))) == ["Removed."]
        assert person.stack.management.users.factors(person.user_id) == Factors()

    async def test_without_a_password_the_last_passkey_stays(self, person: Administrator) -> None:
        await asyncio.to_thread(person.opens, ACCOUNT)
        first, second = [await stored_passkey_of(person.stack, person.user_id) for _ in range(2)]
        database = await asyncpg.connect(person.stack._stack.management.database_url.replace("+asyncpg", ""))
        await database.execute("UPDATE users SET password_hash = NULL WHERE id = $1", person.user_id)
        await database.close()
        both = person.opens(self.PATH).text
        assert [f"{self.PATH}/{each}/remove" in both for each in (first, second)] == [True, True]
        person.stack.management.users.remove_factor(person.user_id, second)
        assert f"{self.PATH}/{first}/remove" not in person.opens(self.PATH).text

    def test_a_removal_needs_a_recent_sign_in(self, person: Administrator) -> None:
        code = person.stack.management.users.create_enrolment_code(person.user_id).code
        self.set_up(person, "add-authenticator", enrolment_code=code)
        (app,) = person.stack.management.users.factors(person.user_id).factors
        page = person.opens(f"{self.PATH}/{app.id}/remove")
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        person.opens(ACCOUNT)
        asked = httpx.URL(person.browser.get(f"{self.PATH}/{app.id}/remove").headers["Location"])
        assert (asked.params["prompt"], asked.params["login_hint"]) == ("login", person.username)
        assert heading(page) == "Remove the authenticator app?"
        assert len(person.stack.management.users.factors(person.user_id).factors) == 1

    def test_nothing_but_what_exists_has_a_page(self, person: Administrator) -> None:
        for path in ("set-up/delete-account", "x1", "x1/remove"):
            assert person.opens(f"{self.PATH}/{path}").status_code == 404


class TestConnectedAccounts:
    PATH = f"{ACCOUNT}/identities"

    @pytest.fixture
    def connector(self, stack: RunningStack) -> Iterator[str]:
        """A connector that no one signs in through yet."""
        with Provider() as provider:
            name = f"Okta {secrets.token_hex(4)}"
            made = stack.management.connectors.create(name, {"issuer": provider.issuer}).id
            yield made
            stack.management.connectors.delete(made)

    @pytest.mark.heavy
    def test_one_is_shown_and_disconnected_unless_it_is_the_last_way_in(
        self, person: Administrator, connector: str
    ) -> None:
        management = person.stack.management
        assert '<p class="empty">None.</p>' in person.opens(self.PATH).text
        identity = management.users.add_identity(person.user_id, connector, "ada-7").id
        name = management.connectors.get(connector).connector_name
        listed = person.opens(self.PATH)
        assert (f"<bdi>{name}</bdi>" in listed.text, "never" in listed.text) == (True, True)
        domain = f"{secrets.token_hex(5)}.test"
        config = {"clientId": CLIENT, "clientSecret": SECRET}
        management.connectors.update(connector, config=config, domains=[domain])
        management.users.update(person.user_id, primary_email=f"ada@{domain}")
        person.browser.headers["Accept-Language"] = "de"
        page = person.opens(f"{self.PATH}/{identity}/remove")
        refused = person.sends(page)
        assert refused.status_code == 422
        assert "Nur so können Sie sich anmelden, deshalb bleibt das Konto verbunden." in refused.text
        assert len(list(management.users.identities(person.user_id))) == 1
        management.users.update(person.user_id, allows_password=True)
        done = person.follows(person.sends(refused))
        assert notices(done) == [f"{name} ist getrennt: Damit melden Sie sich hier nicht mehr an."]
        assert list(management.users.identities(person.user_id)) == []
        assert person.opens(f"{self.PATH}/{identity}/remove").status_code == 404

    def test_it_needs_a_recent_sign_in(self, person: Administrator, connector: str) -> None:
        identity = person.stack.management.users.add_identity(person.user_id, connector, "ada-8").id
        page = person.opens(f"{self.PATH}/{identity}/remove")
        person.signed_in_long_ago()
        person.browser.cookies.delete("identity-account")
        person.opens(ACCOUNT)
        asked = httpx.URL(person.browser.get(f"{self.PATH}/{identity}/remove").headers["Location"])
        assert (asked.params["prompt"], asked.params["login_hint"]) == ("login", person.username)
        again = person.follows(person.sends(page, csrf_token=form_of(person)["csrf_token"]))
        assert heading(again) == "Disconnect this account?"
        assert notices(again)[0].startswith("You have signed in again.")
        assert len(list(person.stack.management.users.identities(person.user_id))) == 1


class TestApplications:
    PATH = f"{ACCOUNT}/applications"

    def test_a_consent_is_told_and_withdrawn(self, world: World) -> None:
        partner = new_application(world, "SPA", third_party=True)
        consenting = Person(world)
        consent = consenting.follow(consenting.sign_in(consenting.follow(consenting.authorize(partner))))
        assert "code" in callback(consenting.send(consent, decision="allow"))
        person = Administrator(world.stack)
        person.username = consenting.username
        page = person.opens(self.PATH)
        assert "See your name, your picture and your profile" in page.text
        page = person.opens(f"{self.PATH}/{partner.id}")
        stale = person.sends(page, shown="0" * 32)
        assert stale.status_code == 412
        page = person.follows(person.sends(page))
        assert notices(page) == ["The application may no longer act for you. Some services may take a while to notice."]
        assert partner.id not in page.text
        assert person.opens(f"{self.PATH}/{partner.id}").status_code == 404


class TestImpersonations:
    PATH = f"{ACCOUNT}/impersonations"

    def test_an_active_one_is_told_and_ended_with_a_reason(self, world: World) -> None:
        stack, person = world.stack, Administrator(world.stack, name="Ada Lovelace")
        asked = stack.management.subject_tokens.create(person.user_id, {"reason": "She asked for <b>help</b>."})
        stack.exchange(asked.token, scope=["openid"])
        listed = stack.management.impersonations.list(user_id=person.user_id)
        eventually(lambda: any(each.context.reason and each.exchanged_at for each in listed))
        for path in (ACCOUNT, self.PATH):
            assert "She asked for &lt;b&gt;help&lt;/b&gt;." in person.opens(path).text
        page = person.opens(self.PATH)
        end = f"{self.PATH}/{asked.impersonation_id}/end"
        refused = person.sends(page, end, reason="x" * 300)
        assert (refused.status_code, "This is longer than 256 characters." in refused.text) == (400, True)
        page = person.follows(person.sends(page, end, reason="I never asked."))
        assert notices(page) == [
            "This has ended: they can no longer act as you. Some services may take a while to notice."
        ]
        get = stack.management.impersonations.get
        eventually(lambda: get(asked.impersonation_id).end_reason == "I never asked.")
        assert get(asked.impersonation_id).ended_by == person.user_id
        other = Administrator(stack)
        assert other.browser.post(end, data=form_of(other)).status_code == 404


FORGED: dict[str, dict[str, Any]] = {
    "without a token": {"data": {"csrf_token": ""}},
    "another token": {"data": {"csrf_token": "0" * 64}},
    "another site": {"headers": {"Origin": "https://evil.example"}},
    "an opaque origin": {"headers": {"Origin": "null"}},
    "JSON": {"json": {"name": "Mallory"}},
    "not text": {"content": b"\xff=1", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
}


@pytest.mark.heavy
def test_a_forged_form_does_nothing(person: Administrator) -> None:
    """Every form refuses every forgery, in one session, which goes on."""
    form = form_of(person)
    answers = {}
    for path in FORMS:
        target = re.sub(r"\{\w+:str\}", "x1", path)
        for name, sent in FORGED.items():
            data = {**form, "name": "Mallory", **sent.get("data", {})}
            answer = person.browser.post(
                target, **(sent if {"json", "content"} & sent.keys() else {**sent, "data": data})
            )
            answers[path, name] = (answer.status_code, heading(answer))
    assert {each for each in answers.items() if each[1] != (403, "This page is out of date")} == set()
    assert len(answers) == len(FORMS) * len(FORGED)
    assert is_signed_in(person)


@pytest.mark.parametrize("path", PAGES)
def test_without_a_session_every_page_leads_to_the_sign_in_and_back(person: Administrator, path: str) -> None:
    signing_in = person.browser.get(path)
    asked = httpx.URL(signing_in.headers["Location"])
    assert (signing_in.status_code, asked.path) == (303, "/oidc/auth")
    assert "resource" not in asked.params
    assert {"account", "impersonations"} <= set(asked.params["scope"].split(" "))
    page = person.follows(signing_in)
    assert (page.status_code, page.url.path) == (200, path)
