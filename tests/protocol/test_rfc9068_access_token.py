"""RFC 9068, JWT Profile for OAuth 2.0 Access Tokens: the tokens that are issued (section 2)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from stead import AccessTokenVerifier, TokenInvalid
from tests.support.world import World

REQUIRED = {"iss", "exp", "aud", "sub", "client_id", "iat", "jti"}


def by_client_credentials(world: World) -> tuple[str, str]:
    return world.client_credentials().json()["access_token"], world.resource


def by_exchange(world: World) -> tuple[str, str]:
    return world.exchange(world.subject_token()).json()["access_token"], world.resource


def by_exchange_with_actor(world: World) -> tuple[str, str]:
    return world.with_actor(world.userinfo_token()).json()["access_token"], world.resource


def by_exchange_for_userinfo(world: World) -> tuple[str, str]:
    return world.exchanged_userinfo_token(), f"{world.stack.issuer}/me"


def by_client_credentials_for_an_organization(world: World) -> tuple[str, str]:
    answer = world.client_credentials(organization_id=world.organization, resource=None)
    return answer.json()["access_token"], world.organization_audience()


def by_exchange_for_an_organization(world: World) -> tuple[str, str]:
    answer = world.exchange(world.subject_token(), organization_id=world.organization, resource=None)
    return answer.json()["access_token"], world.organization_audience()


def by_exchange_within_an_organization(world: World) -> tuple[str, str]:
    return world.exchange(world.subject_token(), organization_id=world.organization).json()[
        "access_token"
    ], world.resource


Issue = Callable[[World], tuple[str, str]]
EVERY_WAY: tuple[Issue, ...] = (
    by_client_credentials,
    by_exchange,
    by_exchange_with_actor,
    by_exchange_for_userinfo,
    by_client_credentials_for_an_organization,
    by_exchange_for_an_organization,
    by_exchange_within_an_organization,
)


@pytest.fixture(params=EVERY_WAY, ids=lambda issue: issue.__name__)
def issue(request: pytest.FixtureRequest) -> Issue:
    way: Issue = request.param
    return way


def decoded(segment: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    return value


def test_the_header_says_what_kind_of_token_it_is(world: World, issue: Issue) -> None:
    """Section 2.1: signed, never ``none``; ``typ`` is ``at+jwt``; nothing else is in the header."""
    token, _ = issue(world)
    header = decoded(token.split(".")[0])

    assert header == {"alg": "ES256", "typ": "at+jwt", "kid": world.forger.kid}


def test_every_required_claim_is_there_and_no_unknown_one(world: World, issue: Issue) -> None:
    """Section 2.2; section 2.2.3: ``scope``."""
    token, audience = issue(world)
    claims = world.claims(token, audience)

    assert claims.keys() >= REQUIRED | {"scope"}
    assert claims.keys() - REQUIRED <= {"scope", "gty", "act", "actor_authentication", "organization_id", "pv"}
    assert claims["iss"] == world.stack.issuer
    assert claims["aud"] == audience
    assert [type(claims[name]) for name in ("iat", "exp", "aud", "sub", "jti")] == [int, int, str, str, str]


def test_it_is_dated_now(world: World, issue: Issue) -> None:
    before = int(time.time())
    token, audience = issue(world)
    claims = world.claims(token, audience)

    assert before <= claims["iat"] <= int(time.time())
    assert claims["exp"] - claims["iat"] == (world.resource_ttl_s if audience == world.resource else 3600)


@pytest.mark.heavy
def test_no_two_tokens_have_one_id(world: World, issue: Issue) -> None:
    """Section 2.2: ``jti``, RFC 7519 section 4.1.7."""
    ids = {world.claims(*issue(world))["jti"] for _ in range(20)}

    assert len(ids) == 20
    assert all(len(each.rpartition(".")[2]) == 32 for each in ids)  # after the ids of impersonations


def test_a_client_that_speaks_for_itself_is_its_own_subject(world: World) -> None:
    """Section 2.2: without a resource owner ``sub`` is an identifier of the client."""
    claims = world.claims(*by_client_credentials(world))

    assert (claims["sub"], claims["client_id"], claims["scope"]) == (world.machine.id, world.machine.id, "read:things")
    assert claims.keys() == REQUIRED | {"scope", "pv"}


def test_the_subject_of_an_exchange_is_the_user_and_client_id_names_the_caller(world: World) -> None:
    """Sections 2.2 and 5: the client that requested the token is in ``client_id``."""
    claims = world.claims(*by_exchange(world))

    assert (claims["sub"], claims["client_id"]) == (world.customer, world.traditional.id)
    assert claims["gty"] == GRANT_TOKEN_EXCHANGE
    assert claims.keys() == REQUIRED | {"scope", "gty", "pv"}


def test_an_actor_is_named_beside_the_subject(world: World) -> None:
    """The interface: ``act`` is there only with an actor token and holds ``sub``."""
    claims = world.claims(*by_exchange_with_actor(world))

    assert claims["act"] == {"sub": world.agent}
    assert claims.keys() == REQUIRED | {"scope", "gty", "act", "actor_authentication", "pv"}


def test_an_empty_scope_is_an_empty_string(world: World) -> None:
    """The contract: the SDKs read a string, whatever was granted."""
    token = world.client_credentials(scope=None).json()["access_token"]

    assert world.claims(token, world.resource)["scope"] == ""


def test_our_sdk_accepts_it_for_its_audience_only(world: World, issue: Issue) -> None:
    """Section 4: a verifier of any other resource refuses it."""
    token, audience = issue(world)

    verifier = AccessTokenVerifier(issuer=world.stack.issuer, audience=audience)
    accepted = verifier.verify(token, organization_aware=True)
    assert accepted.claims == world.claims(token, audience)
    if issue is by_exchange_within_an_organization:
        with pytest.raises(TokenInvalid, match="organization_only"):
            verifier.verify(token)
    else:
        assert verifier.verify(token) == accepted
    for other in (world.other_resource, audience + "/", audience.upper()):
        with pytest.raises(TokenInvalid, match="wrong_audience"):
            AccessTokenVerifier(issuer=world.stack.issuer, audience=other).verify(token)


def test_it_holds_no_personal_data(world: World, issue: Issue) -> None:
    """Section 6: every holder of an access token can read it; ids only."""
    token, _ = issue(world)

    assert "Somebody" not in json.dumps(decoded(token.split(".")[1]))
