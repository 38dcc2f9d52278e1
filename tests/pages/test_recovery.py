"""Forgotten passwords and mailed links at a browser without scripts."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Form, Person, application, callback, heading
from tests.support.mailed_links import mails_of
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import RECOVERY, VERIFICATION

NEW_PASSWORD = "chosen through a mailed link"
NOT_VALID = (400, "This link is not valid")
VARYING = {"x-request-id", "date", "content-length"}
EVIL = {"Host": "evil.example.com", "X-Forwarded-Host": "evil.example.com", "X-Forwarded-Proto": "gopher"}


class Forgetful(Person):
    """A person with an e-mail address, who reads the mail that is sent there."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.address = f"{self.username}@id.test"
        world.management.users.update(self.user_id, primary_email=self.address)

    def ask(self, address: str | None = None, **headers: str) -> httpx.Response:
        """Ask for a link at the page, as a browser that has not begun to sign in."""
        form = {"address": self.address if address is None else address}
        return self.browser.post("/sign-in/forgotten", data=form, headers=headers)

    def mails(self) -> list[tuple[str, dict[str, str]]]:
        """Return the kind and the values of each mail to the address."""
        mails = asyncio.run(mails_of(self.world.stack._stack.management))
        return [(mail.kind, mail.values) for mail in mails if mail.recipient == self.address]

    def link(self) -> str:
        """Return the path in the last mail."""
        path = self.mails()[-1][1]["link"]
        self.world.stack.recorder.keep(path.partition("?link=")[2], "mailed link")
        return path

    def open(self, path: str) -> httpx.Response:
        """Open a link: the browser is redirected to the page without the secret."""
        return self.follow(self.browser.get(path))

    def set_password(self, page: httpx.Response, password: str = NEW_PASSWORD, **values: str) -> httpx.Response:
        self.world.stack.recorder.keep(password, "password")
        return self.send(page, **{"password": password, "repeated": password, **values})


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def person(world: World) -> Forgetful:
    return Forgetful(world)


def shown(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, heading(answer)


def test_a_forgotten_password_is_replaced_on_the_way_to_the_application(person: Forgetful, ours: Client) -> None:
    sign_in = person.follow(person.authorize(ours))
    (forgotten,) = re.findall(r'<a href="(/sign-in/forgotten[^"]*)"', sign_in.text)
    page = person.browser.get(forgotten.replace("&amp;", "&"))
    assert "Back to the sign-in" in page.text
    sent = person.send(page, address=person.address.upper())
    assert shown(sent) == (200, "Check your e-mail")
    opened = person.open(person.link())
    assert shown(opened) == (200, "Choose a new password")
    assert person.address not in opened.text.partition("<main>")[0]
    done = person.set_password(opened)
    assert shown(done) == (200, "Your password is set")
    (back,) = re.findall(r'<a class="button" href="([^"]+)"', done.text)
    again = person.browser.get(back.replace("&amp;", "&"))
    assert "The name or the password is not right." in person.sign_in(again).text
    assert callback(person.sign_in(again, password=NEW_PASSWORD))["code"]
    assert [kind for kind, _ in person.mails()] == ["password-recovery", "password-changed"]


def test_the_link_leads_to_the_application_in_another_browser(person: Forgetful, ours: Client) -> None:
    query = f"request={Form(person.follow(person.authorize(ours)).text).values['request']}"
    person.browser.post(f"/sign-in/forgotten?{query}", data={"address": person.address})
    path, person.browser = person.link(), person.new_browser()
    done = person.set_password(person.open(path))
    assert '<a class="button" href="https://app.example.com/">' in done.text


def test_a_new_password_ends_sessions_and_refresh_tokens(person: Forgetful, ours: Client) -> None:
    code, verifier = person.code(ours)
    tokens = person.redeem(ours, code, verifier)
    session, person.browser = person.browser, person.new_browser()
    person.ask()
    assert shown(person.set_password(person.open(person.link()))) == (200, "Your password is set")
    form = {"grant_type": "refresh_token", "client_id": ours.id, "refresh_token": tokens["refresh_token"]}
    refused = person.world.stack.token_request(form)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    person.browser = session
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"


def test_the_page_says_what_is_wrong_with_a_password_and_keeps_the_link(person: Forgetful) -> None:
    person.ask()
    page = person.open(person.link())
    for values, problem in (
        ({"password": NEW_PASSWORD, "repeated": "another"}, "The two passwords differ."),
        ({"password": "short", "repeated": "short"}, "The password must have 8 to 256 characters."),
        ({"password": "", "repeated": ""}, "The password must have 8 to 256 characters."),
    ):
        page = person.send(page, **values)
        assert shown(page) == (200, "Choose a new password")
        assert problem in page.text
        assert 'aria-invalid="true"' in page.text
    assert shown(person.set_password(page)) == (200, "Your password is set")
    assert shown(person.set_password(page)) == NOT_VALID
    assert shown(person.browser.get("/sign-in/recovery")) == NOT_VALID  # the cookie is gone


@pytest.mark.parametrize("path", ["/sign-in/recovery", "/sign-in/verification"])
def test_what_is_not_a_link_opens_nothing(person: Forgetful, path: str) -> None:
    links = ("", "x", "0" * 43, "é" * 43, "0" * 5000, "a&link=b")
    for query in ("", *(f"?link={link}" for link in links)):
        answer = person.browser.get(f"{path}{query}")
        if answer.has_redirect_location:
            answer = person.follow(answer)
        assert shown(answer) == NOT_VALID, query
    chosen = {"password": NEW_PASSWORD, "repeated": NEW_PASSWORD}
    for form in ({"link": ""}, {"other": "x"}, {"link": "x" * 1000, **chosen}):
        assert shown(person.browser.post(path, data=form)) == NOT_VALID
    assert shown(person.browser.post(path, data={"link": ["x", "x"]})) == (400, "Start again")


@pytest.mark.parametrize("address", ["", "ada", "a@b", "a b@c.test", "\r\nBcc: x@y.test", "x" * 300])
def test_what_is_not_an_address_is_refused(person: Forgetful, address: str) -> None:
    answer = person.ask(address)
    assert shown(answer) == (200, "Forgot your password?")
    assert "Enter an e-mail address." in answer.text


def test_a_known_and_an_unknown_address_get_the_same_answer(world: World, person: Forgetful) -> None:
    """By text, by status and by headers; the steps behind it are compared in component/management."""
    suspended, unknown = Forgetful(world), f"unknown{secrets.token_hex(4)}@id.test"
    world.management.users.suspend(suspended.user_id)
    answers = [(address, person.ask(address)) for address in (person.address, suspended.address, unknown)]
    told = [
        (
            answer.status_code,
            answer.text.replace(address, "…"),
            [header for header in answer.headers.items() if header[0] not in VARYING],
        )
        for address, answer in answers
    ]
    assert told[0] == told[1] == told[2]
    assert [len(person.mails()), len(suspended.mails())] == [1, 0]


def test_links_are_built_from_the_base_url_whatever_the_host_header_says(world: World, person: Forgetful) -> None:
    assert shown(person.ask(**EVIL)) == (200, "Check your e-mail")
    ((_, values),) = person.mails()
    assert re.fullmatch(r"/sign-in/recovery\?link=[0-9A-Za-z]{43}", values["link"])
    assert "evil" not in str(values)
    opened = person.browser.get(person.link(), headers=EVIL)
    assert opened.headers["Location"] == f"{world.stack.base_url}/sign-in/recovery"


def test_the_secret_of_a_link_is_in_no_address_and_no_referrer(person: Forgetful) -> None:
    person.ask()
    path = person.link()
    secret = path.partition("?link=")[2]
    opened = person.browser.get(path)
    page = person.follow(opened)
    assert secret not in opened.headers["Location"]
    assert secret not in str(page.url)
    assert [answer.headers["Referrer-Policy"] for answer in (opened, page)] == ["no-referrer"] * 2
    assert [answer.headers["Cache-Control"] for answer in (opened, page)] == ["no-store"] * 2
    (cookie,) = opened.headers.get_list("set-cookie")
    assert cookie.startswith(f"{RECOVERY}={secret}; ")
    assert {"HttpOnly", "Max-Age=900", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_opening_a_link_changes_nothing(world: World, person: Forgetful, ours: Client) -> None:
    """Programs that scan mails open links, too."""
    assert callback(person.sign_in(person.follow(person.authorize(ours))))["code"]
    person.ask()
    world.management.users.send_verification_email(person.user_id)
    (_, recovery), (_, verification) = person.mails()
    before = world.management.users.get(person.user_id)
    for path in (recovery["link"], verification["link"]):
        for method in ("GET", "HEAD", "GET"):
            with person.new_browser() as scanner:
                opened = scanner.request(method, path)
                assert scanner.request(method, opened.headers["Location"]).status_code == 200
    assert world.management.users.get(person.user_id) == before
    assert callback(person.authorize(ours))["code"]  # the session goes on
    assert shown(person.set_password(person.open(recovery["link"]))) == (200, "Your password is set")


def test_a_link_changes_its_own_account_whoever_is_signed_in(world: World, person: Forgetful, ours: Client) -> None:
    other = Forgetful(world)
    assert callback(other.sign_in(other.follow(other.authorize(ours))))["code"]
    person.ask()
    page = other.open(person.link())
    assert person.address in page.text or person.username in page.text
    assert shown(other.set_password(page)) == (200, "Your password is set")
    assert callback(other.authorize(ours))["code"]
    assert callback(person.sign_in(person.follow(person.authorize(ours)), password=NEW_PASSWORD))["code"]


def test_a_form_of_another_site_is_refused(person: Forgetful) -> None:
    cross_site = {"Sec-Fetch-Site": "cross-site"}
    assert shown(person.ask(**cross_site)) == (400, "Start again")
    assert person.mails() == []
    person.ask()
    form = Form(person.open(person.link()).text).values
    chosen = {**form, "password": NEW_PASSWORD, "repeated": NEW_PASSWORD}
    assert shown(person.browser.post("/sign-in/recovery", data=chosen, headers=cross_site)) == (400, "Start again")


def test_no_application_is_believed_that_this_browser_has_not_come_from(person: Forgetful, ours: Client) -> None:
    request = Form(person.follow(person.authorize(ours)).text).values["request"]
    with person.new_browser() as elsewhere:
        for query in (f"client_id={ours.id}", f"request={request}", "request=x"):
            page = elsewhere.get(f"/sign-in/forgotten?{query}")
            assert shown(page) == (200, "Forgot your password?")
            assert "Back to the sign-in" not in page.text


def test_an_address_is_verified_by_a_click_on_the_page_of_its_link(world: World, person: Forgetful) -> None:
    world.management.users.send_verification_email(person.user_id)
    page = person.open(person.link())
    assert shown(page) == (200, "Confirm your e-mail address")
    assert person.address in page.text
    assert not world.management.users.get(person.user_id).is_email_verified
    done = person.send(page)
    assert shown(done) == (200, "Your e-mail address is confirmed")
    assert f"{VERIFICATION}=" in done.headers["set-cookie"]
    assert world.management.users.get(person.user_id).is_email_verified
    assert shown(person.send(page)) == NOT_VALID


def test_the_pages_of_a_link_have_the_language_of_its_mail(person: Forgetful) -> None:
    german: dict[str, Any] = {"Accept-Language": "de"}
    assert heading(person.ask(**german)) == "Sehen Sie in Ihr Postfach"
    page = person.open(person.link())
    assert shown(page) == (200, "Neues Passwort wählen")
    assert shown(person.set_password(page)) == (200, "Ihr Passwort ist gesetzt")
