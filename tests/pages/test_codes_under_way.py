"""A code that is not redeemed yet ends with its consent, and with its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest
from sqlalchemy import text

from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.authorizing import REDIRECT_URI, Stores, Verifier, in_stores, until_a_transaction_waits
from tests.support.lengths import length
from tests.support.world import Client, World, outcome
from token_service.authorizations import consents

ROUNDS = length(short=12, long=25)


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


@pytest.fixture(params=["ours", "partner"])
def client(request: pytest.FixtureRequest) -> Client:
    """An application that needs no consent page, and one that does."""
    found: Client = request.getfixturevalue(request.param)
    return found


class Tab:
    """One of several browser tabs in which a person authorizes a client."""

    def __init__(self, person: Person, client: Client) -> None:
        self.person = person
        self.client = client
        self.verifier = Verifier()

    def authorize(self, **changes: Any) -> httpx.Response:
        return self.person.authorize(self.client, verifier=self.verifier, **changes)

    def agree(self, answer: httpx.Response) -> httpx.Response:
        """Allow, if the consent page is shown."""
        return self.person.send(self.person.follow(answer), decision="allow") if is_page("consent", answer) else answer

    def sign_in(self) -> httpx.Response:
        """Sign in and agree, where the pages ask for it."""
        answer = self.authorize()
        if is_page("sign-in", answer):
            answer = self.person.sign_in(self.person.follow(answer))
        return self.agree(answer)

    def redeem(self, code: str) -> httpx.Response:
        form = {"code": code, "redirect_uri": REDIRECT_URI, "code_verifier": self.verifier.secret}
        return self._ask(grant_type="authorization_code", **form)

    def tokens(self) -> dict[str, Any]:
        """Sign in and return the client's tokens."""
        answer = self.redeem(callback(self.sign_in())["code"])
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def refresh_token(self, answer: httpx.Response) -> str:
        """Return the refresh token for the code of a redirect; empty without a code, or with a dead one."""
        if not answer.headers["Location"].startswith(REDIRECT_URI):
            return ""
        redeemed = self.redeem(callback(answer)["code"])
        assert outcome(redeemed) in {(200, None), (400, "invalid_grant")}
        return str(redeemed.json().get("refresh_token", ""))

    def is_alive(self, refresh_token: str) -> bool:
        return self._ask(grant_type="refresh_token", refresh_token=refresh_token or "ref_none").status_code == 200

    def _ask(self, **form: str) -> httpx.Response:
        return self.person.world.stack.token_request({"client_id": self.client.id, **form})


def is_page(name: str, answer: httpx.Response) -> bool:
    return f"/{name}?request=" in answer.headers["Location"]


def sign_out(person: Person, id_token: str) -> None:
    done = person.browser.get("/oidc/session/end", params={"id_token_hint": id_token})
    assert heading(done) == "You are signed out"


def withdraw(person: Person, client: Client) -> None:
    person.world.management.users.withdraw_consent(person.user_id, client.id)


def held_up_at_the_consent(
    person: Person, client: Client, step: Callable[[], httpx.Response], *, id_token: str | None = None
) -> httpx.Response:
    """Run a step, hold it up where it reads the consent, and return its answer after the change.

    Args:
        person: The person at the browser.
        client: The client whose consent is read.
        step: The request that is held up.
        id_token: The person signs out with it meanwhile; without it, the consent is withdrawn meanwhile.
    """
    settings = person.world.stack.token_settings

    async def run(stores: Stores) -> httpx.Response:
        async with stores.engine.connect() as connection:
            await consents.withdraw(connection, settings.tenant_id, person.user_id, client.id)
            pending = asyncio.create_task(asyncio.to_thread(step))
            await until_a_transaction_waits(connection)
            if id_token is None:
                await connection.commit()
            else:
                await asyncio.to_thread(sign_out, person, id_token)
                await connection.rollback()
            return await pending

    return in_stores(settings, run)


def test_a_code_ends_with_the_consent(world: World, client: Client) -> None:
    tab = Tab(Person(world), client)
    code = callback(tab.sign_in())["code"]
    withdraw(tab.person, client)

    assert outcome(tab.redeem(code)) == (400, "invalid_grant")
    assert outcome(tab.redeem(code)) == (400, "invalid_grant")
    assert tab.is_alive(tab.refresh_token(tab.sign_in()))


def test_a_code_ends_with_the_session(world: World, client: Client) -> None:
    tab = Tab(Person(world), client)
    id_token = tab.tokens()["id_token"]
    code = callback(tab.sign_in())["code"]
    sign_out(tab.person, id_token)

    assert outcome(tab.redeem(code)) == (400, "invalid_grant")
    assert tab.is_alive(tab.refresh_token(tab.sign_in()))


def test_an_authorization_during_a_withdrawal_asks_for_consent_again(world: World, partner: Client) -> None:
    tab = Tab(Person(world), partner)
    tab.tokens()
    asked = held_up_at_the_consent(tab.person, partner, tab.authorize)
    assert heading(tab.person.follow(asked)) == "Allow access?"
    assert world.management.users.consents(tab.person.user_id) == []
    assert tab.is_alive(tab.refresh_token(tab.agree(asked)))

    refused = held_up_at_the_consent(tab.person, partner, lambda: tab.authorize(prompt="none"))
    assert callback(refused)["error"] == "consent_required"
    assert world.management.users.consents(tab.person.user_id) == []


def test_a_first_party_application_gets_its_consent_again(world: World, ours: Client) -> None:
    tab = Tab(Person(world), ours)
    tab.tokens()

    assert tab.is_alive(tab.refresh_token(held_up_at_the_consent(tab.person, ours, tab.authorize)))
    assert [each.application_id for each in world.management.users.consents(tab.person.user_id)] == [ours.id]


def test_an_authorization_during_a_sign_out_asks_for_a_sign_in(world: World, client: Client) -> None:
    tab = Tab(Person(world), client)
    id_token = tab.tokens()["id_token"]
    asked = held_up_at_the_consent(tab.person, client, tab.authorize, id_token=id_token)
    page = tab.person.follow(asked)
    assert heading(page) == "Sign in"
    tokens = tab.redeem(callback(tab.person.sign_in(page))["code"]).json()

    refused = held_up_at_the_consent(
        tab.person, client, lambda: tab.authorize(prompt="none"), id_token=tokens["id_token"]
    )
    assert callback(refused)["error"] == "login_required"


def test_a_consent_during_a_sign_out_asks_for_a_sign_in(world: World, ours: Client, partner: Client) -> None:
    person = Person(world)
    id_token, tab = Tab(person, ours).tokens()["id_token"], Tab(person, partner)
    consent = person.follow(tab.authorize())
    asked = held_up_at_the_consent(person, partner, lambda: person.send(consent, decision="allow"), id_token=id_token)
    page = person.follow(asked)
    assert heading(page) == "Sign in"

    assert tab.is_alive(tab.refresh_token(person.sign_in(page)))


@pytest.mark.parametrize("held", ["the client's row", "another client's row"])
def test_signing_out_ends_a_code_that_was_issued_meanwhile(world: World, client: Client, held: str) -> None:
    """The sign-out is held up before the session ends: another tab finds it alive, and gets a code."""
    tab, settings = Tab(Person(world), client), world.stack.token_settings
    other = application(world, "SPA")
    assert Tab(tab.person, other).tokens()
    tokens = tab.tokens()

    async def run(stores: Stores) -> httpx.Response:
        async with stores.engine.begin() as connection:
            these = text(
                "SELECT FROM authorizations WHERE user_id = :user AND application_id = :application FOR UPDATE"
            )
            application_id = client.id if held == "the client's row" else other.id
            await connection.execute(these, {"user": tab.person.user_id, "application": application_id})
            signing_out = asyncio.create_task(asyncio.to_thread(sign_out, tab.person, tokens["id_token"]))
            await until_a_transaction_waits(connection)
            answer = await asyncio.to_thread(tab.authorize, prompt="none")
        await signing_out
        return answer

    code = callback(in_stores(settings, run))["code"]
    assert outcome(tab.redeem(code)) == (400, "invalid_grant")
    assert not tab.is_alive(tokens["refresh_token"])


@pytest.mark.heavy
def test_live_tokens_have_a_consent(world: World, client: Client) -> None:
    """Raced: tabs authorize, and agree where they are asked, while the consent is withdrawn."""
    person = Person(world)
    Tab(person, client).tokens()
    for _ in range(ROUNDS):
        tabs = [Tab(person, client) for _ in range(2)]
        with ThreadPoolExecutor(3) as pool:
            pending = [pool.submit(lambda tab=tab: tab.refresh_token(tab.agree(tab.authorize()))) for tab in tabs]  # type: ignore[misc]
            pool.submit(withdraw, person, client).result()
            refresh_tokens = [each.result() for each in pending]
        is_consented = world.management.users.consents(person.user_id) != []
        alive = [tab.is_alive(token) for tab, token in zip(tabs, refresh_tokens, strict=True)]
        assert is_consented or not any(alive)
        if not is_consented:
            Tab(person, client).tokens()


@pytest.mark.heavy
def test_nothing_is_alive_after_signing_out(world: World, client: Client) -> None:
    """Raced: tabs authorize while the person signs out."""
    person = Person(world)
    for _ in range(ROUNDS):
        id_token = Tab(person, client).tokens()["id_token"]
        tabs = [Tab(person, client) for _ in range(2)]
        with ThreadPoolExecutor(3) as pool:
            pending = [pool.submit(lambda tab=tab: tab.refresh_token(tab.authorize())) for tab in tabs]  # type: ignore[misc]
            pool.submit(sign_out, person, id_token).result()
            refresh_tokens = [each.result() for each in pending]
        assert [tab.is_alive(token) for tab, token in zip(tabs, refresh_tokens, strict=True)] == [False] * 2
