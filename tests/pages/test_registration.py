"""Registration at a browser without scripts."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from identity_common.wire.mail import Mail
from tests.support.at_a_browser import Form, Person, application, callback, heading
from tests.support.mailed_links import mails_of
from tests.support.waiting import eventually
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import REGISTRATION

PASSWORD = "chosen at the end of registering"
NOT_VALID = (400, "This link is not valid")
VARYING = {"x-request-id", "date", "content-length"}


class Newcomer(Person):
    """A person without an account, who reads the mail that is sent to an address."""

    def __init__(self, world: World, domain: str = "id.test") -> None:
        self.world = world
        self.address = f"new{secrets.token_hex(5)}@{domain}"
        self.browser = self.new_browser()

    def ask(self, address: str | None = None, **headers: str) -> httpx.Response:
        """Ask for a link at the page, as a browser that has not begun to sign in."""
        form = {"address": self.address if address is None else address}
        return self.browser.post("/sign-in/register", data=form, headers=headers)

    def begin(self, client: Client) -> httpx.Response:
        """Follow the link of the sign-in page to the page that has a link mailed."""
        sign_in = self.follow(self.authorize(client))
        (register,) = re.findall(r'<a href="(/sign-in/register[^"]*)"', sign_in.text)
        return self.browser.get(register.replace("&amp;", "&"))

    def mails(self) -> list[Mail]:
        mails = asyncio.run(mails_of(self.world.stack._stack.management))
        return [mail for mail in mails if mail.recipient == self.address]

    def link(self) -> str:
        """Return the path in the last mail."""
        path = self.mails()[-1].values["link"]
        self.world.stack.recorder.keep(path.partition("?link=")[2], "mailed link")
        return path

    def open(self, path: str) -> httpx.Response:
        """Open a link: the browser is redirected to the page without the secret."""
        return self.follow(self.browser.get(path))

    def register(self, page: httpx.Response, **values: str) -> httpx.Response:
        self.world.stack.recorder.keep(PASSWORD, "password")
        return self.send(page, **{"name": "Ada Lovelace", "password": PASSWORD, "repeated": PASSWORD, **values})


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module", autouse=True)
def opened(world: World) -> Iterator[None]:
    """All worlds share one policy: it is off again after the tests of this module."""
    world.management.sign_in_policy.update(registration="open")
    world.caught_up()
    yield
    world.management.sign_in_policy.update(registration=None, registration_domains=None)
    world.caught_up()


@pytest.fixture
def person(world: World) -> Newcomer:
    return Newcomer(world)


def shown(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, heading(answer)


def test_a_person_registers_on_the_way_to_the_application(world: World, person: Newcomer, ours: Client) -> None:
    page = person.begin(ours)
    assert shown(page) == (200, "Register")
    assert "Back to the sign-in" in page.text
    assert shown(person.send(page, address=person.address)) == (200, "Check your e-mail")
    opened = person.open(person.link())
    assert shown(opened) == (200, "Create your account")
    assert person.address in opened.text
    back = person.register(opened)
    assert back.headers["Location"].startswith("/sign-in?request=")
    assert callback(person.follow(back))["code"]

    (user,) = world.management.users.list(search=person.address)
    assert (user.name, user.primary_email, user.is_email_verified) == ("Ada Lovelace", person.address, True)
    entries = world.management.logs.list(user_id=user.id)
    eventually(lambda: {"management.user.create", "token.sign-in.succeeded"} <= {each.key for each in entries})
    (created,) = (each for each in entries if each.key == "management.user.create")
    assert (created.operation, created.user_id, created.application_id) == ("Register", user.id, None)


def test_a_new_account_is_no_way_around_a_second_factor(world: World, person: Newcomer, ours: Client) -> None:
    world.management.sign_in_policy.update(second_factor="required")
    world.caught_up()
    try:
        person.send(person.begin(ours), address=person.address)
        set_up = person.follow(person.follow(person.register(person.open(person.link()))))
        assert (set_up.url.path, heading(set_up)) == ("/sign-in/set-up", "Protect your account")
    finally:
        world.management.sign_in_policy.update(second_factor="optional")
        world.caught_up()


def test_in_another_browser_a_link_signs_nobody_in(world: World, person: Newcomer, ours: Client) -> None:
    person.send(person.begin(ours), address=person.address)
    path, first = person.link(), person.browser
    person.browser = person.new_browser()
    done = person.register(person.open(path))
    assert shown(done) == (200, "Your account is ready")
    assert '<a class="button" href="https://app.example.com/">' in done.text
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"
    person.browser = first
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"
    page = person.follow(person.authorize(ours))
    assert callback(person.send(page, identifier=person.address, password=PASSWORD))["code"]


def test_a_person_who_is_signed_in_as_another_is_the_new_one_afterwards(
    world: World, person: Newcomer, ours: Client
) -> None:
    other = Person(world)
    assert other.code(ours)
    person.browser = other.browser
    sign_in = person.follow(person.authorize(ours, prompt="login"))
    query = f"request={Form(sign_in.text).values['request']}"
    person.browser.post(f"/sign-in/register?{query}", data={"address": person.address})
    assert callback(person.follow(person.register(person.open(person.link()))))["code"]
    (user,) = world.management.users.list(search=person.address)
    code, verifier = person.code(ours)
    assert person.redeem(ours, code, verifier)["id_token"]
    assert user.id != other.user_id


def test_default_roles_with_rights_stop_registration_and_the_link_stays(world: World, person: Newcomer) -> None:
    person.ask()
    page = person.open(person.link())
    (read,) = (each for each in world.management.resources.scopes("management-api") if each.name == "users:read")
    role = world.management.roles.create(
        name=secrets.token_hex(5), description="", is_default=True, scope_ids=[read.id]
    )
    try:
        page = person.register(page)
        assert shown(page) == (200, "Create your account")
        assert "No account can be created at present." in page.text
    finally:
        world.management.roles.delete(role.id)
    assert shown(person.register(page)) == (200, "Your account is ready")


def test_the_page_says_what_is_wrong_and_keeps_the_name_and_the_link(person: Newcomer) -> None:
    person.ask()
    page = person.open(person.link())
    for values, problem in (
        ({"repeated": "another"}, "The two passwords differ."),
        ({"password": "short", "repeated": "short"}, "The password must have 8 to 256 characters."),
        ({"password": "", "repeated": ""}, "The password must have 8 to 256 characters."),
        ({"name": " \u2003"}, "Enter your name, in at most 256 visible characters."),
        ({"name": "<b>\u200b</b>"}, "Enter your name, in at most 256 visible characters."),
        ({"name": "x" * 257}, "Enter your name, in at most 256 visible characters."),
    ):
        page = person.register(page, **values)
        assert shown(page) == (200, "Create your account")
        assert problem in page.text
        assert 'aria-invalid="true"' in page.text
        assert Form(page.text).values["name"] == values.get("name", "Ada Lovelace")
        assert "<b>" not in page.text
    assert shown(person.register(page)) == (200, "Your account is ready")
    assert shown(person.register(page)) == NOT_VALID
    assert shown(person.browser.get("/sign-in/registration")) == NOT_VALID  # the cookie is gone


def test_an_address_that_was_taken_meanwhile_is_refused(world: World, person: Newcomer) -> None:
    person.ask()
    page = person.open(person.link())
    world.management.users.create(primary_email=person.address)
    refused = person.register(page)
    assert shown(refused) == (200, "Create your account")
    assert "There is an account with this address by now." in refused.text


def test_known_unknown_and_foreign_addresses_get_the_same_answer(world: World, ours: Client) -> None:
    """By text, by status and by headers; the steps behind it are compared in component/management."""
    domain = f"{secrets.token_hex(4)}.example"
    world.management.sign_in_policy.update(registration="domains", registration_domains=[domain])
    known, unknown, foreign = Newcomer(world, domain), Newcomer(world, domain), Newcomer(world, "foreign.example")
    world.management.users.create(primary_email=known.address)
    answers = [(each.address, each.ask()) for each in (known, unknown, foreign)]
    told = [
        (
            answer.status_code,
            answer.text.replace(address, "…"),
            [header for header in answer.headers.items() if header[0] not in VARYING],
        )
        for address, answer in answers
    ]
    assert told[0] == told[1] == told[2]
    kinds = [[mail.kind for mail in each.mails()] for each in (known, unknown, foreign)]
    assert kinds == [["already-registered"], ["registration"], []]
    world.management.sign_in_policy.update(registration="open", registration_domains=None)


def test_nothing_is_offered_while_registration_is_off(world: World, person: Newcomer, ours: Client) -> None:
    person.ask()
    path = person.link()
    world.management.sign_in_policy.update(registration="off")
    world.caught_up()
    assert "/sign-in/register" not in person.follow(person.authorize(ours)).text
    for answer in (person.browser.get("/sign-in/register"), person.ask()):
        assert shown(answer) == (200, "Register")
        assert "You cannot create an account here yourself." in answer.text
        assert "<form" not in answer.text
    assert len(person.mails()) == 1
    assert shown(person.open(path)) == NOT_VALID
    world.management.sign_in_policy.update(registration="open")
    world.caught_up()


@pytest.mark.parametrize("address", ["", "ada", "a@b", "a b@c.test", "\r\nBcc: x@y.test", "x" * 300])
def test_what_is_not_an_address_is_refused(person: Newcomer, address: str) -> None:
    answer = person.ask(address)
    assert shown(answer) == (200, "Register")
    assert "Enter an e-mail address." in answer.text


def test_the_secret_of_a_link_is_in_no_address_and_opening_it_changes_nothing(world: World, person: Newcomer) -> None:
    person.ask()
    path = person.link()
    secret = path.partition("?link=")[2]
    for method in ("GET", "HEAD", "GET"):
        opened = person.browser.request(method, path)
        page = person.browser.request(method, opened.headers["Location"])
        assert page.status_code == 200
        assert opened.headers["Location"] == f"{world.stack.base_url}/sign-in/registration"
        (cookie,) = opened.headers.get_list("set-cookie")
        assert cookie.startswith(f"{REGISTRATION}={secret}; ")
        assert {answer.headers["Referrer-Policy"] for answer in (opened, page)} == {"no-referrer"}
    assert list(world.management.users.list(search=person.address)) == []


def test_a_form_of_another_site_is_refused(person: Newcomer) -> None:
    cross_site = {"Sec-Fetch-Site": "cross-site"}
    assert shown(person.ask(**cross_site)) == (400, "Start again")
    person.ask()
    form = {**Form(person.open(person.link()).text).values, "name": "Ada", "password": PASSWORD, "repeated": PASSWORD}
    refused = person.browser.post("/sign-in/registration", data=form, headers=cross_site)
    assert shown(refused) == (400, "Start again")


def test_the_pages_speak_german_and_those_of_a_link_as_its_mail_does(person: Newcomer) -> None:
    german = {"Accept-Language": "de"}
    assert heading(person.browser.get("/sign-in/register", headers=german)) == "Registrieren"
    assert heading(person.ask(**german)) == "Sehen Sie in Ihr Postfach"
    page = person.open(person.link())
    assert shown(page) == (200, "Ihr Konto anlegen")
    assert shown(person.register(page)) == (200, "Ihr Konto ist bereit")
