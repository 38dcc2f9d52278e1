"""``id_token_hint``: the user that an application expects (OpenID Connect Core 1.0 sections 3.1.2.1 and 3.1.2.2)."""

from __future__ import annotations

import jwt
import pytest

from tests.support.at_a_browser import Person, application, callback, heading
from tests.support.authorizing import Verifier
from tests.support.world import Client, World


@pytest.fixture(scope="module")
def spa(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture
def ada(world: World) -> Person:
    return Person(world)


@pytest.fixture
def bob(world: World) -> Person:
    return Person(world)


def id_token(person: Person, client: Client) -> str:
    """Sign in and return the ID token."""
    return str(person.redeem(client, *person.code(client))["id_token"])


def test_the_expected_user_is_not_asked_when_signed_in(ada: Person, spa: Client) -> None:
    for _ in range(2):  # silent renewal: each ID token is the next hint
        hint = id_token(ada, spa)
        assert callback(ada.authorize(spa, prompt="none", id_token_hint=hint))["code"]
        assert callback(ada.authorize(spa, id_token_hint=hint))["code"]


def test_an_expired_hint_counts(world: World, ada: Person, bob: Person, spa: Client) -> None:
    """Section 3.1.2.2: it says who is expected, and gives no access."""
    claims = jwt.decode(id_token(ada, spa), options={"verify_signature": False})
    expired = world.forger.sign({**claims, "iat": claims["iat"] - 7200, "exp": claims["exp"] - 7200}, typ="JWT")
    assert callback(ada.authorize(spa, prompt="none", id_token_hint=expired))["code"]
    bob.code(spa)
    assert callback(bob.authorize(spa, prompt="none", id_token_hint=expired))["error"] == "login_required"


def test_no_code_is_issued_for_another_user_than_the_expected_one(ada: Person, bob: Person, spa: Client) -> None:
    hint = id_token(ada, spa)
    bob.code(spa)
    assert callback(bob.authorize(spa, prompt="none", id_token_hint=hint))["error"] == "login_required"
    page = bob.follow(bob.authorize(spa, id_token_hint=hint))
    assert heading(page) == "Sign in"
    assert heading(bob.browser.get(str(page.url))) == "Sign in"
    refused = callback(bob.sign_in(page))
    assert (refused["error"], refused["state"]) == ("login_required", "s-1")
    assert heading(bob.browser.get(str(page.url))) == "Start again"
    assert callback(bob.authorize(spa, prompt="none"))["code"], "the sign-in itself was good"


def test_signing_in_as_the_expected_user_goes_on(world: World, ada: Person, bob: Person, spa: Client) -> None:
    hint = id_token(ada, spa)
    bob.code(spa)
    verifier = Verifier()
    page = bob.follow(bob.authorize(spa, verifier=verifier, id_token_hint=hint))
    bob.username = ada.username
    tokens = bob.redeem(spa, callback(bob.sign_in(page))["code"], verifier)
    assert world.claims(tokens["access_token"], f"{world.stack.issuer}/me")["sub"] == ada.user_id


def test_the_consent_of_another_user_than_the_expected_one_does_not_count(
    world: World, ada: Person, bob: Person
) -> None:
    """The page was opened for one user, and another signs in at the same browser before it is answered."""
    partner, ours = application(world, "SPA", third_party=True), application(world, "SPA")
    verifier = Verifier()
    consent = ada.follow(ada.sign_in(ada.follow(ada.authorize(partner, verifier=verifier))))
    hint = ada.redeem(partner, callback(ada.send(consent, decision="allow"))["code"], verifier)["id_token"]
    consent = ada.follow(ada.authorize(partner, prompt="consent", id_token_hint=hint))
    assert heading(consent) == "Allow access?"
    bob.browser = ada.browser
    assert callback(bob.sign_in(bob.follow(bob.authorize(ours, prompt="login"))))["code"]
    assert heading(ada.follow(ada.send(consent, decision="allow"))) == "Sign in"


def test_a_hint_that_is_not_an_id_token_of_this_client_is_refused(world: World, ada: Person, spa: Client) -> None:
    """Section 3.1.2.2: a hint is an ID token that was issued here for a session with this client."""
    tokens = ada.redeem(spa, *ada.code(spa))
    hint, other = tokens["id_token"], application(world, "SPA")
    assert callback(ada.authorize(other))["code"]
    for client, wrong in (
        (spa, "x"),
        (spa, f"{hint[:-4]}AAAA"),
        (spa, tokens["access_token"]),
        (other, hint),
    ):
        for prompt in (None, "none"):
            back = callback(ada.authorize(client, prompt=prompt, id_token_hint=wrong))
            assert (back["error"], back["state"]) == ("invalid_request", "s-1")
