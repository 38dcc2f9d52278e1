"""Attacks on passkeys, authenticator apps and recovery codes, with the pages of the whole system.

What management-service refuses by itself is in component/management: counters, races, hostile CBOR, guessed codes.
"""

from __future__ import annotations

import asyncio
import re
from base64 import urlsafe_b64decode
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Person, callback, heading
from tests.support.authenticator import UP, Authenticator
from tests.support.authorizing import REDIRECT_URI
from tests.support.factors import AuthenticatorApp
from tests.support.mailed_links import mails_of
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import SESSION

MFA = "urn:service:acr:mfa"
NOT_ACCEPTED = "The passkey was not accepted."
VARYING = re.compile(r'(data-challenge|nonce|value)="[^"]*"')


class Forms(HTMLParser):
    """The forms of a page, by their paths: the address, the hidden values, and the attributes of the form."""

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.by_path: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {}
        self._values: dict[str, str] = {}
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._values = {}
            self.by_path.setdefault(urlsplit(named["action"]).path, (named["action"], self._values, named))
        elif tag == "input" and named.get("type") == "hidden" and "disabled" not in named:
            self._values[named["name"]] = named.get("value", "")


class Wary(Person):
    """A person with a verified address, who sets up factors in a browser."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.address = f"{self.username}@id.test"
        world.management.users.update(self.user_id, primary_email=self.address, is_email_verified=True)
        self.device = Authenticator(origin=world.stack.base_url)
        self.app: AuthenticatorApp
        self.recovery_codes: list[str] = []

    def keep(self, secret: str, kind: str) -> str:
        self.world.stack.recorder.keep(secret, kind)
        return secret

    def send_to(self, page: httpx.Response, path: str, **values: Any) -> httpx.Response:
        """Send the form of a page that leads to a path."""
        action, hidden, _ = Forms(page).by_path[path]
        return self.browser.post(action, data={**hidden, **values})

    def challenge(self, page: httpx.Response, path: str) -> str:
        return Forms(page).by_path[path][2]["data-challenge"]

    def mailed_code(self, page: httpx.Response) -> str:
        self.send_to(page, "/sign-in/set-up/code")
        mails = asyncio.run(mails_of(self.world.stack._stack.management))
        return self.keep([mail for mail in mails if mail.user_id == self.user_id][-1].values["code"], "enrolment code")

    def chosen(self, client: Client) -> httpx.Response:
        """Sign in to an application that demands a second factor; return the page that offers to set one up."""
        page = self.follow(self.sign_in(self.follow(self.authorize(client, acr_values=MFA))))
        assert heading(page) == "Protect your account"
        return page

    def open(self, page: httpx.Response, path: str) -> httpx.Response:
        """Follow the link of a page that leads to a path."""
        (link,) = re.findall(rf'href="([^"]*{path}[^"]*)"', page.text)
        return self.browser.get(unescape(link))

    def adds_passkey(self, client: Client) -> httpx.Response:
        chosen = self.chosen(client)
        code, path = self.mailed_code(chosen), "/sign-in/set-up/passkey"
        page = self.open(chosen, path)
        handle = Forms(page).by_path[path][2]["data-user"]
        created = self.device.create(self.challenge(page, path), user_handle=urlsafe_b64decode(handle + "=="))
        return self._added(self.send_to(page, path, credential=created, enrolment_code=code, name=""))

    def adds_app(self, client: Client) -> httpx.Response:
        chosen = self.chosen(client)
        code, path = self.mailed_code(chosen), "/sign-in/set-up/authenticator"
        page = self.open(chosen, path)
        (key,) = re.findall(r'<code class="key"[^>]*>([^<]+)</code>', page.text)
        self.app = AuthenticatorApp(key.replace(" ", ""))
        return self._added(self.send_to(page, path, current=self.app.code(-1), enrolment_code=code))

    def _added(self, shown: httpx.Response) -> httpx.Response:
        assert heading(shown) == "Keep your recovery codes", shown.text
        self.recovery_codes = re.findall(r"<code>([^<]+)</code>", shown.text)
        assert len(self.recovery_codes) == 10
        return shown

    def asked(self, client: Client, **changes: Any) -> httpx.Response:
        """Sign in with the password in another browser; return the page that asks for more."""
        self.browser = self.new_browser()
        page = self.follow(self.sign_in(self.follow(self.authorize(client, **changes))))
        assert heading(page) == "Confirm that it is you"
        return page


@pytest.fixture
def wary(world: World, ours: Client) -> Wary:
    """A person with a passkey."""
    person = Wary(world)
    person.adds_passkey(ours)
    return person


def refused(answer: httpx.Response) -> bool:
    return answer.status_code == 200 and NOT_ACCEPTED in answer.text and 'data-passkey-problem="failed">' in answer.text


def is_signed_in(person: Person) -> bool:
    return SESSION in person.browser.cookies


class TestPasskeys:
    """A response is good for one challenge, of one page, in one browser, of this origin."""

    def test_a_captured_response_signs_in_once(self, wary: Wary, attacker: Person, ours: Client) -> None:
        wary.browser = wary.new_browser()
        page, path = wary.follow(wary.authorize(ours)), "/sign-in/passkey"
        captured = wary.device.get(wary.challenge(page, path))
        assert callback(wary.send_to(page, path, credential=captured))["code"]
        action, hidden, _ = Forms(page).by_path[path]
        assert heading(wary.browser.post(action, data={**hidden, "credential": captured})) == "Start again"
        assert heading(attacker.browser.post(action, data={**hidden, "credential": captured})) == "Start again"
        fresh = attacker.follow(attacker.authorize(ours))
        action, hidden, _ = Forms(fresh).by_path[path]
        assert refused(attacker.browser.post(action, data={**hidden, "credential": captured}))
        assert not is_signed_in(attacker)

    def test_a_challenge_is_spent_by_a_failure_and_replaced_by_the_next_page(self, wary: Wary, ours: Client) -> None:
        wary.browser = wary.new_browser()
        page, path = wary.follow(wary.authorize(ours)), "/sign-in/passkey"
        good = wary.device.get(wary.challenge(page, path))
        again = wary.send_to(page, path, credential=wary.device.get("A" * 43))
        assert refused(again)
        assert refused(wary.send_to(again, path, credential=good))
        other = wary.follow(wary.authorize(ours))
        assert refused(wary.send_to(page, path, credential=wary.device.get(wary.challenge(other, path))))
        assert not is_signed_in(wary)

    def test_the_victim_is_not_signed_in_with_the_attackers_passkey(
        self, wary: Wary, victim: Person, ours: Client
    ) -> None:
        """Login CSRF: the attacker's page, request and response, sent by the victim's browser."""
        wary.browser = wary.new_browser()
        page, path = wary.follow(wary.authorize(ours)), "/sign-in/passkey"
        action, hidden, _ = Forms(page).by_path[path]
        victim.follow(victim.authorize(ours))
        forged = victim.browser.post(action, data={**hidden, "credential": wary.device.get(wary.challenge(page, path))})
        assert (forged.status_code, heading(forged)) == (400, "Start again")
        assert not is_signed_in(victim)

    def test_every_refusal_reads_alike(self, world: World, wary: Wary, ours: Client) -> None:
        """Nor does it tell whose passkey exists: of a suspended user, of none, of one who signs in elsewhere."""
        suspended, stranger = Wary(world), Authenticator(origin=world.stack.base_url)
        suspended.adds_passkey(ours)
        world.management.users.suspend(suspended.user_id)
        world.caught_up()
        stranger.user_handle = b"x" * 32
        wary.browser, path = wary.new_browser(), "/sign-in/passkey"
        page = wary.follow(wary.authorize(ours))
        hostile: list[tuple[Authenticator, dict[str, Any]]] = [
            (suspended.device, {}),
            (stranger, {}),
            (wary.device, {"origin": "https://evil.example.com"}),
            (wary.device, {"origin": f"{world.stack.base_url}.evil.example.com"}),
            (wary.device, {"rp_id": "evil.example.com"}),
            (wary.device, {"flags": UP}),
            (wary.device, {"type": "webauthn.create"}),
            (wary.device, {"cross_origin": True}),
            (wary.device, {"signature": b"\x00" * 70}),
            (wary.device, {"user_handle": suspended.device.user_handle}),
            (wary.device, {"credential_id": suspended.device.credential_id}),
        ]
        seen = set()
        for device, changes in hostile:
            page = wary.send_to(page, path, credential=device.get(wary.challenge(page, path), **changes))
            assert refused(page), changes
            seen.add(VARYING.sub("", page.text))
        for credential in ("", "{}", "[]", "null", "é", "x" * 70_000, '{"id": ' * 9_000):
            page = wary.send_to(page, path, credential=credential)
            assert refused(page), credential[:9]
            seen.add(VARYING.sub("", page.text))
        assert len(seen) == 1
        assert not is_signed_in(wary)

    def test_the_attackers_passkey_does_not_confirm_the_victims_password(
        self, world: World, wary: Wary, ours: Client
    ) -> None:
        attacker, path = Wary(world), "/sign-in/factor/passkey"
        attacker.adds_passkey(ours)
        page = wary.asked(ours)
        offered = Forms(page).by_path[path][2]["data-credentials"].split()
        assert len(offered) == 1
        assert refused(wary.send_to(page, path, credential=attacker.device.get(wary.challenge(page, path))))
        assert "code" not in callback(wary.authorize(ours, prompt="none"))


class TestStolenPassword:
    """Who has the password alone gets no further, whichever page is opened instead."""

    def test_no_page_is_skipped(self, wary: Wary, partner: Client, ours: Client) -> None:
        page = wary.asked(partner)
        _, request, _ = Forms(page).by_path["/sign-in/factor"]
        set_up = ("/sign-in/set-up", "/sign-in/set-up/passkey", "/sign-in/set-up/authenticator")
        for path in ("/sign-in", "/consent", *set_up):
            answer = wary.browser.get(path, params={"request": request["request"]})
            while answer.has_redirect_location:
                assert not answer.headers["Location"].startswith(REDIRECT_URI), path
                answer = wary.browser.get(answer.headers["Location"])
            assert heading(answer) == "Confirm that it is you", path
        for path, fields in (
            ("/consent", {"decision": "allow"}),
            ("/sign-in/set-up/recovery-codes", {}),
            ("/sign-in/set-up/authenticator", {"sealed": "", "current": "000000"}),
            ("/sign-in/set-up/passkey", {"credential": "{}"}),
            ("/sign-in/set-up/code", {}),
        ):
            answer = wary.browser.post(path, data={**request, **fields})
            assert not answer.headers.get("Location", "").startswith(REDIRECT_URI), path
        for client in (ours, partner):
            for changes in ({}, {"acr_values": "urn:service:acr:password"}, {"action": "add-authenticator"}):
                answer = wary.authorize(client, prompt="none", **changes)
                assert "code" not in dict(parse_qsl(urlsplit(answer.headers["Location"]).query)), changes

    def test_a_mailed_link_for_the_password_is_no_second_factor(self, wary: Wary, ours: Client) -> None:
        wary.browser = wary.new_browser()
        wary.browser.post("/sign-in/forgotten", data={"address": wary.address})
        mails = asyncio.run(mails_of(wary.world.stack._stack.management))
        link = [mail for mail in mails if mail.recipient == wary.address][-1].values["link"]
        wary.keep(link.partition("?link=")[2], "mailed link")
        page = wary.follow(wary.browser.get(link))
        new = wary.keep("chosen through a mailed link", "password")
        assert heading(wary.send(page, password=new, repeated=new)) == "Your password is set"
        page = wary.follow(wary.sign_in(wary.follow(wary.authorize(ours)), password=new))
        assert heading(page) == "Confirm that it is you"

    def test_the_first_factor_is_not_set_up_without_the_mail(self, world: World, ours: Client) -> None:
        person, thief = Wary(world), "/sign-in/set-up/authenticator"
        page = person.open(person.chosen(ours), thief)
        (key,) = re.findall(r'<code class="key"[^>]*>([^<]+)</code>', page.text)
        app = AuthenticatorApp(key.replace(" ", ""))
        for guess in ("", "AAAAAAAA", "0" * 8, "x" * 5000):
            answer = person.send_to(page, thief, current=app.code(-1), enrolment_code=guess)
            assert heading(answer) == "Set up an authenticator app", guess[:9]
        person.browser = person.new_browser()
        assert heading(person.chosen(ours)) == "Protect your account"


class TestSessions:
    """The cookie of a session says how its user has signed in, and nothing about what happens elsewhere."""

    def test_a_session_from_before_the_factor_is_asked_for_it(self, world: World, ours: Client) -> None:
        person = Wary(world)
        person.code(ours)
        before, person.browser = person.browser, person.new_browser()
        person.adds_passkey(ours)
        person.world.caught_up()
        person.browser = before
        assert "code" not in callback(person.authorize(ours, prompt="none"))
        assert heading(person.follow(person.authorize(ours))) == "Confirm that it is you"

    def test_a_cookie_from_before_the_factor_does_not_become_stronger(self, wary: Wary, ours: Client) -> None:
        page, path = wary.asked(ours), "/sign-in/factor/passkey"
        fixed = wary.browser.cookies[SESSION]
        assert callback(wary.send_to(page, path, credential=wary.device.get(wary.challenge(page, path))))["code"]
        assert wary.browser.cookies[SESSION] != fixed
        assert callback(wary.authorize(ours, prompt="none"))["code"]
        thief = wary.new_browser()
        thief.cookies.set(SESSION, fixed)
        wary.browser = thief
        assert "code" not in callback(wary.authorize(ours, prompt="none"))

    def test_a_spent_code_is_worth_nothing_in_another_browser(self, world: World, ours: Client) -> None:
        person = Wary(world)
        person.adds_app(ours)
        recovery, used = person.recovery_codes[0], person.app.code()
        for code in (used, recovery):
            page = person.asked(ours)
            assert callback(person.send_to(page, "/sign-in/factor", code=code))["code"]
            page = person.asked(ours)
            again = person.send_to(page, "/sign-in/factor", code=code)
            assert "The code is not right, or was used already." in again.text
            assert "code" not in callback(person.authorize(ours, prompt="none"))
