"""Who needs a second factor to get a code, and that nothing leads around it; without scripts."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import httpx2 as httpx
import pytest

from identity_common.wire.events import SecondFactorMode
from tests.support.at_a_browser import Form, Person, application, asks_for_factor, callback, heading
from tests.support.factors import AuthenticatorApp
from tests.support.mailed_links import mails_of
from tests.support.world import Client, World
from token_service.sign_in.pages.cookies import DEVICE, SESSION

MFA = "urn:service:acr:mfa"
FACTOR, SET_UP = "/sign-in/factor", "/sign-in/set-up"


class Careful(Person):
    """A person who has set up an authenticator app.

    Attributes:
        codes: The recovery codes that are left.
    """

    def __init__(self, world: World, client: Client) -> None:
        super().__init__(world)
        open_enrolment(world, self.user_id)
        chosen = self.follow(self.sign_in(self.follow(self.authorize(client, acr_values=MFA))))
        assert chosen.url.path == SET_UP, chosen.text
        page = self.browser.get(f"{SET_UP}/authenticator", params=dict(parse_qsl(chosen.url.query.decode())))
        (secret,) = re.findall(r'<code class="key">([^<]+)', page.text)
        added = self.send(page, current=AuthenticatorApp(secret.replace(" ", "")).code())
        self.codes = re.findall(r"<code>([^<]+)</code>", added.text)
        assert len(self.codes) == 10, added.text

    def confirm(self, page: httpx.Response, code: str | None = None) -> httpx.Response:
        """Send a recovery code, the next one by default, from the page that asks for another factor."""
        assert asks_for_factor(page), page.text
        return self.send(page, code=code or self.codes.pop(), kind="recovery")

    def sign_in_whole(self, client: Client, **changes: Any) -> httpx.Response:
        """Sign in with the password and a recovery code."""
        page = self.follow(self.sign_in(self.follow(self.authorize(client, **changes))))
        return self.confirm(page)


def open_enrolment(world: World, user_id: str) -> None:
    """Let a user set up a first factor without a mailed code, as a link that sets the password does."""

    async def insert() -> None:
        connection = await asyncpg.connect(world.stack.addresses.management_database_url.replace("+asyncpg", ""))
        try:
            await connection.execute(
                """INSERT INTO factor_enrolments (tenant_id, user_id, origin, attempts, expires_at)
                VALUES ($1, $2, 'link', 0, $3)""",
                *(world.stack.tenant_id, user_id, int((time.time() + 900) * 1000)),
            )
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, insert()).result()


def path_of(answer: httpx.Response) -> str:
    """Return the path that an answer redirects to, or of the page that asks for a factor."""
    if asks_for_factor(answer):
        return FACTOR
    assert answer.status_code == 303, answer.text
    return urlsplit(answer.headers["Location"]).path


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def careful(world: World, ours: Client) -> Careful:
    return Careful(world, ours)


@pytest.fixture
def person(careful: Careful) -> Iterator[Careful]:
    """The same person at a new browser."""
    careful.browser = careful.new_browser()
    yield careful
    careful.browser.close()


@pytest.fixture
def set_policy(world: World) -> Iterator[Callable[[SecondFactorMode], None]]:
    """Set the tenant's second factor; all worlds share it: it is optional again after each test."""

    def set_to(mode: SecondFactorMode) -> None:
        world.management.sign_in_policy.update(second_factor=mode)
        world.caught_up()

    yield set_to
    set_to("optional")


def test_a_password_alone_opens_no_page_that_leads_to_a_code(person: Careful, ours: Client) -> None:
    page = person.follow(person.authorize(ours))
    asked = person.sign_in(page)
    assert asks_for_factor(asked), "at once, without another request"
    assert asks_for_factor(person.sign_in(page)), "a reload sends the form again"
    assert asks_for_factor(person.follow(person.browser.get(page.url))), "Back"
    form = Form(asked.text).values
    request = {"request": form["request"], "client_id": ours.id}
    for path in ("/sign-in", "/sign-in/account", "/consent", SET_UP, f"{SET_UP}/passkey", f"{SET_UP}/recovery-codes"):
        assert path_of(person.browser.get(path, params=request)) == FACTOR
    posted = {"request": form["request"], "csrf_token": form["csrf_token"]}
    for path, values in (
        ("/consent", {"decision": "allow"}),
        ("/sign-in/account", {"decision": "continue", "account": person.user_id}),
    ):
        assert path_of(person.browser.post(path, params=request, data=posted | values)) == FACTOR
    assert path_of(person.authorize(ours)) == FACTOR, "a new request does not help either"
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"

    wrong = person.confirm(asked, code="aaaa-bbbb-cccc")
    assert heading(wrong) == "Confirm that it is you"
    assert callback(person.confirm(asked))["code"]
    assert callback(person.authorize(ours, prompt="none"))["code"]


def test_a_secret_from_before_the_second_factor_opens_nothing(person: Careful, ours: Client) -> None:
    asked = person.follow(person.sign_in(person.follow(person.authorize(ours))))
    stolen = person.browser.cookies.get(SESSION)
    code = callback(person.confirm(asked))["code"]
    assert code
    thief = person.new_browser()
    thief.cookies.set(SESSION, stolen or "", domain=urlsplit(person.world.stack.base_url).hostname or "")
    person.browser = thief
    assert path_of(person.authorize(ours)) == "/sign-in"


def test_a_browser_becomes_known_to_the_account_with_the_second_factor(person: Careful, ours: Client) -> None:
    """So that with a stolen password alone, each sign-in does not give another ten attempts at codes."""
    asked = person.follow(person.sign_in(person.follow(person.authorize(ours))))
    assert DEVICE not in person.browser.cookies
    person.confirm(asked)
    assert DEVICE in person.browser.cookies


def test_step_up_asks_for_the_missing_factor_alone_and_a_new_sign_in_for_both(person: Careful, ours: Client) -> None:
    """OpenID Connect Core 1.0 section 3.1.2.1: ``acr_values``, ``prompt``, ``max_age``."""
    person.sign_in_whole(ours)
    assert callback(person.authorize(ours, acr_values=MFA))["code"]
    demands: tuple[dict[str, Any], ...] = ({"prompt": "login"}, {"max_age": "0"})
    for changes in demands:
        page = person.follow(person.authorize(ours, **changes))
        assert page.url.path == "/sign-in"
        assert path_of(person.sign_in(page)) == FACTOR
    only_passkeys = callback(person.authorize(ours, acr_values="phr", prompt="none"))
    assert only_passkeys["error"] == "login_required"
    unknown = callback(person.authorize(ours, acr_values="urn:example:gold"))
    assert unknown["error"] == "unmet_authentication_requirements"


def test_the_consent_page_is_no_way_around_a_demand_from_after_it_was_shown(world: World, person: Careful) -> None:
    theirs = application(world, "SPA", third_party=True)
    consent = person.follow(person.sign_in_whole(theirs))
    assert consent.url.path == "/consent"
    world.management.applications.update(theirs.id, custom_client_metadata={"minimumAcr": "phr"})
    world.caught_up()
    assert path_of(person.send(consent, decision="allow")) in {FACTOR, SET_UP}


def test_a_sign_in_in_another_tab_takes_the_second_factor_from_the_consent_page(world: World, person: Careful) -> None:
    theirs = application(world, "SPA", third_party=True)
    consent = person.follow(person.sign_in_whole(theirs))
    person.sign_in(person.follow(person.authorize(theirs, prompt="login")))
    assert path_of(person.send(consent, decision="allow")) == FACTOR


def test_people_who_are_signed_in_set_one_up_when_the_tenant_requires_it(
    world: World, ours: Client, set_policy: Callable[[SecondFactorMode], None]
) -> None:
    person = Person(world)
    tokens = person.redeem(ours, *person.code(ours))
    set_policy("required")
    assert path_of(person.authorize(ours)) == SET_UP
    assert callback(person.authorize(ours, prompt="none"))["error"] == "login_required"
    refreshing = {"grant_type": "refresh_token", "client_id": ours.id, "refresh_token": tokens["refresh_token"]}
    refused = world.stack.token_request(refreshing)
    assert (refused.status_code, refused.json()["acr_values"]) == (403, MFA)


def test_where_nothing_may_be_set_up_the_client_is_told(
    world: World, ours: Client, set_policy: Callable[[SecondFactorMode], None]
) -> None:
    person = Person(world)
    set_policy("off")
    page = person.follow(person.authorize(ours, acr_values=MFA))
    assert callback(person.sign_in(page))["error"] == "unmet_authentication_requirements"
    assert callback(person.authorize(ours, acr_values=MFA, prompt="none")) == {
        "error": "unmet_authentication_requirements",
        "error_description": "the tenant's policy lets no factor be set up",
        "state": "s-1",
        "iss": world.stack.issuer,
    }
    assert callback(person.authorize(ours))["code"]


def test_a_recovered_password_is_no_second_factor(world: World, ours: Client) -> None:
    """And ends the session that had one."""
    person, password = Careful(world, ours), "chosen through a mailed link"
    address = f"{person.username}@id.test"
    world.management.users.update(person.user_id, primary_email=address)
    world.stack.recorder.keep(password, "password")
    person.browser.post("/sign-in/forgotten", data={"address": address})
    link = [mail for mail in asyncio.run(mails_of(world.stack._stack.management)) if mail.recipient == address][-1]
    page = person.follow(person.browser.get(link.values["link"]))
    assert heading(person.send(page, password=password, repeated=password)) == "Your password is set"
    page = person.follow(person.authorize(ours))
    assert page.url.path == "/sign-in"
    assert path_of(person.sign_in(page, password=password)) == FACTOR


@pytest.mark.parametrize("has_factor", [False, True])
def test_an_action_comes_after_a_recent_sign_in_as_strong_as_the_user_can(
    request: pytest.FixtureRequest, world: World, ours: Client, has_factor: bool
) -> None:
    person: Person = request.getfixturevalue("person") if has_factor else Person(world)
    signed_in = person.sign_in(person.follow(person.authorize(ours, action="add-passkey")))
    if isinstance(person, Careful):
        signed_in = person.confirm(person.follow(signed_in))
    assert path_of(signed_in).startswith(SET_UP)
    assert callback(person.authorize(ours, action="add-passkey", prompt="none"))["error"] == "invalid_request"
    assert (
        callback(person.authorize(application(world, "SPA", third_party=True), action="add-passkey"))["error"]
        == "invalid_request"
    )
