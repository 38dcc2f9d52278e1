"""``prompt=select_account``: this browser's account, or another (OpenID Connect Core 1.0 section 3.1.2.1)."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from tests.support.at_a_browser import Form, Person, application, callback, heading
from tests.support.authorizing import Verifier
from tests.support.world import Client, World

SELECT = {"prompt": "select_account"}
CHOOSE = "Choose an account"


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def partner(world: World) -> Client:
    return application(world, "SPA", third_party=True)


@pytest.fixture
def ada(world: World, ours: Client) -> Person:
    """Signed in."""
    person = Person(world)
    person.code(ours)
    return person


@pytest.fixture
def bob(world: World, ada: Person) -> Person:
    """Another user of Ada's browser."""
    person = Person(world)
    person.browser = ada.browser
    return person


def subject(person: Person, client: Client, answer: httpx.Response, verifier: Verifier) -> str:
    """Redeem the code that came back, and return whom it is for."""
    tokens = person.redeem(client, callback(answer)["code"], verifier)
    return str(person.world.claims(tokens["access_token"], f"{person.world.stack.issuer}/me")["sub"])


def test_the_account_of_this_browser_is_offered_and_goes_on(ada: Person, ours: Client) -> None:
    verifier = Verifier()
    page = ada.follow(ada.authorize(ours, verifier=verifier, **SELECT))
    assert (page.url.path, heading(page)) == ("/sign-in/account", CHOOSE)
    assert f"Continue as <bdi>Ada Lovelace</bdi><br><small><bdi>{ada.username}</bdi></small>" in page.text
    assert heading(ada.browser.get(str(page.url))) == CHOOSE
    assert subject(ada, ours, ada.send(page, decision="continue"), verifier) == ada.user_id
    assert heading(ada.send(page, decision="continue")) == "Start again"


def test_another_account_signs_in_while_the_first_stays_until_then(ada: Person, bob: Person, ours: Client) -> None:
    verifier = Verifier()
    page = ada.follow(ada.authorize(ours, verifier=verifier, **SELECT))
    page = ada.follow(ada.send(page, decision="another"))
    assert (heading(page), Form(page.text).values["identifier"]) == ("Sign in", "")
    assert callback(ada.authorize(ours, prompt="none"))["code"]
    assert subject(bob, ours, bob.sign_in(page), verifier) == bob.user_id


def test_signing_in_is_a_selection(world: World, ours: Client) -> None:
    person = Person(world)
    page = person.follow(person.authorize(ours, **SELECT))
    assert heading(page) == "Sign in"
    assert callback(person.sign_in(page))["code"]


def test_with_login_the_selected_account_signs_in_again(ada: Person, ours: Client) -> None:
    for demand in ({"prompt": "select_account login"}, {**SELECT, "max_age": "0"}):
        page = ada.follow(ada.authorize(ours, **demand))
        assert heading(page) == CHOOSE
        page = ada.follow(ada.send(page, decision="continue"))
        assert (heading(page), Form(page.text).values["identifier"]) == ("Sign in", ada.username)
        assert heading(ada.browser.get(str(page.url))) == "Sign in", "the selection is not asked for again"
        assert callback(ada.sign_in(page))["code"]


def test_with_consent_or_at_a_partner_the_consent_page_follows(ada: Person, ours: Client, partner: Client) -> None:
    for client, prompt in ((ours, "consent select_account"), (partner, "select_account")):
        page = ada.follow(ada.authorize(client, prompt=prompt))
        assert heading(page) == CHOOSE
        early = ada.browser.post("/consent", data={**Form(page.text).values, "decision": "allow"})
        assert heading(ada.follow(early)) == CHOOSE
        consent = ada.follow(ada.send(page, decision="continue"))
        assert heading(consent) == "Allow access?"
        assert callback(ada.send(consent, decision="allow"))["code"]


def test_a_sign_in_within_max_age_is_recent_enough_for_the_pages_that_follow(
    ada: Person, ours: Client, partner: Client
) -> None:
    """OpenID Connect Core 1.0 section 3.1.2.1: only if more time has elapsed, the user must sign in again."""
    page = ada.follow(ada.authorize(ours, max_age="3600", **SELECT))
    assert callback(ada.send(page, decision="continue"))["code"]
    consent = ada.follow(ada.authorize(partner, max_age="3600"))
    assert heading(consent) == "Allow access?"
    assert callback(ada.send(consent, decision="allow"))["code"]


def test_without_a_selection_the_client_is_told(ada: Person, ours: Client) -> None:
    page = ada.follow(ada.authorize(ours, **SELECT))
    back = callback(ada.send(page, decision="cancel"))
    assert (back["error"], back["state"]) == ("account_selection_required", "s-1")
    assert callback(ada.authorize(ours, prompt="none select_account"))["error"] == "invalid_request"
    assert callback(ada.authorize(ours, prompt="select_accounts"))["error"] == "invalid_request"


def test_an_expected_user_is_the_only_one_offered(ada: Person, bob: Person, ours: Client) -> None:
    hint = ada.redeem(ours, *ada.code(ours))["id_token"]
    page = ada.follow(ada.authorize(ours, id_token_hint=hint, **SELECT))
    assert (heading(page), "Use another account" in page.text) == (CHOOSE, False)
    assert callback(ada.send(page, decision="continue"))["code"]
    assert callback(bob.sign_in(bob.follow(bob.authorize(ours, prompt="login"))))["code"]
    assert heading(ada.follow(ada.authorize(ours, id_token_hint=hint, **SELECT))) == "Sign in"


def test_a_selection_counts_for_the_account_that_was_shown(ada: Person, bob: Person, ours: Client) -> None:
    """Another user signs in, or the session ends, while the page is open."""
    verifier = Verifier()
    page = ada.follow(ada.authorize(ours, verifier=verifier, login_hint="someone", **SELECT))
    ada.world.management.users.suspend(ada.user_id)
    ada.world.caught_up()
    signed_out = ada.follow(ada.send(page, decision="continue"))
    assert (heading(signed_out), Form(signed_out.text).values["identifier"]) == ("Sign in", "someone")
    bob.code(ours, prompt="login")
    again = ada.send(page, decision="continue")
    assert subject(bob, ours, again, verifier) == bob.user_id, "Bob has signed in since: that was the selection"


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": ""},
        {"decision": "allow"},
        {"decision": ["continue", "another"]},
        {"csrf_token": "x"},
        {"request": "x"},
    ],
)
def test_a_form_that_is_not_of_the_page_selects_nothing(ada: Person, ours: Client, changes: dict[str, str]) -> None:
    page = ada.follow(ada.authorize(ours, **SELECT))
    assert ada.send(page, **{"decision": "continue", **changes}).status_code == 400
    assert ada.browser.post("/sign-in/account", content=b"x", headers={"Content-Type": "text/plain"}).status_code == 400
    assert callback(ada.send(page, decision="continue"))["code"]


def test_the_page_is_in_the_language_of_the_browser(ada: Person, ours: Client) -> None:
    page = ada.follow(ada.authorize(ours, ui_locales="de", **SELECT))
    assert (heading(page), "Anderes Konto verwenden" in page.text) == ("Konto wählen", True)
    assert heading(ada.follow(ada.send(page, decision="another"))) == "Anmelden"
