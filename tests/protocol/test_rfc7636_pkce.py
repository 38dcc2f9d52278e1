"""PKCE at the token endpoint (RFC 7636): every client, method S256, no way around it (RFC 9700 section 2.1.1)."""

from __future__ import annotations

import pytest

from tests.support.authorizing import Verifier
from tests.support.signing_in import NOT_ACCEPTABLE, SignIn
from tests.support.world import World, error_body, outcome

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
