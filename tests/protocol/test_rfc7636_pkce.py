"""PKCE at the token endpoint (RFC 7636): method S256, and no way around it unless a client's settings say so."""

from __future__ import annotations

import pytest

from tests.support.authorizing import Verifier
from tests.support.signing_in import NOT_ACCEPTABLE, SignIn
from tests.support.world import Client, World, error_body, outcome

REFUSED = error_body("invalid_grant", NOT_ACCEPTABLE)


def test_the_example_of_the_rfc_is_accepted(world: World) -> None:
    """Appendix B: the verifier and its challenge."""
    sign_in = SignIn(world, verifier=Verifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"))

    assert sign_in.stands_for.code_challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.mark.parametrize("name", ["traditional", "spa", "native"])
def test_another_verifier_is_refused_and_spends_the_code(world: World, name: str) -> None:
    """Section 4.6: invalid_grant. There is no second guess."""
    sign_in = SignIn(world, getattr(world, name))

    assert sign_in.redeem(code_verifier="a" * 43).json() == REFUSED
    assert sign_in.redeem().json() == REFUSED


def test_the_challenge_itself_is_not_a_verifier(world: World) -> None:
    """CVE-2024-23647: no downgrade to the method ``plain``, which the token request cannot choose either."""
    sign_in = SignIn(world)

    assert sign_in.redeem(code_verifier=sign_in.verifier.challenge, code_challenge_method="plain").json() == REFUSED


@pytest.mark.parametrize("changes", [{"code_verifier": None}, {"code_verifier": ""}])
def test_the_verifier_cannot_be_left_out(world: World, changes: dict[str, str | None]) -> None:
    """CVE-2024-23647: and nothing is spent."""
    sign_in = SignIn(world)

    assert sign_in.redeem(**changes).json() == error_body("invalid_request", "code_verifier is required")
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.mark.parametrize("verifier", ["a" * 42, "a" * 129, "a" * 42 + "=", "a" * 42 + " ", "ä" * 43, "a" * 42 + "\n"])
def test_a_malformed_verifier_is_an_invalid_request(world: World, verifier: str) -> None:
    """Section 4.1: 43 to 128 unreserved characters."""
    sign_in = SignIn(world)

    assert outcome(sign_in.redeem(code_verifier=verifier)) == (400, "invalid_request")
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.fixture(scope="module")
def older(world: World) -> Client:
    """A first-party Traditional application that need not use PKCE."""
    client = world.client("Traditional")
    world.management.applications.update(client.id, custom_client_metadata={"requirePkce": False})
    world.caught_up()
    return client


def test_a_client_that_need_not_use_pkce_redeems_a_code_without_it(world: World, older: Client) -> None:
    """RFC 9700 section 2.1.1: a confidential client may rely on the nonce instead."""
    sign_in = SignIn(world, older, code_challenge=None, nonce="n-1")

    tokens = sign_in.tokens(code_verifier=None)

    assert sign_in.id_token_claims(tokens["id_token"])["nonce"] == "n-1"


def test_a_verifier_without_a_challenge_is_refused(world: World, older: Client) -> None:
    """RFC 9700 section 4.8.2: the client meant to use PKCE, so the challenge was stripped on the way."""
    sign_in = SignIn(world, older, code_challenge=None)

    assert sign_in.redeem().json() == REFUSED
    assert sign_in.redeem(code_verifier=None).json() == REFUSED


def test_a_challenge_without_its_verifier_is_refused(world: World, older: Client) -> None:
    """Section 4.6, CVE-2024-23647: a client that began with PKCE must end with it."""
    sign_in = SignIn(world, older)

    assert sign_in.redeem(code_verifier=None).json() == REFUSED
    assert outcome(SignIn(world, older).redeem()) == (200, None)


def test_a_client_that_must_use_pkce_cannot_redeem_a_code_without_challenge(world: World) -> None:
    """Its settings were changed after the code had been issued."""
    sign_in = SignIn(world, code_challenge=None)

    assert sign_in.redeem(code_verifier=None).json() == error_body("invalid_request", "code_verifier is required")
    assert sign_in.redeem().json() == REFUSED
