"""The verifier process for proxies: its responses to checks, its health and its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from stead import AsyncAccessTokenVerifier, NotValidFeed, ProxiedCaller, proxied_caller
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, Clock, Jwks, SigningKey, token
from verifier.app import VerifierApplication

KEY, JUNK = SigningKey("key"), SigningKey("junk")
GOOD = token(KEY)
IMPERSONATED = token(KEY, act={"sub": "agent0000001"}, gty="token-exchange")
WITHIN = token(KEY, organization_id="org000000001")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys() -> Iterator[Jwks]:
    with Jwks(KEY) as serving:
        yield serving


def process(keys: Jwks, clock: Clock, feed: NotValidFeed | None = None) -> httpx.AsyncClient:
    verifier = AsyncAccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys.url, clock=clock, feed=feed)
    transport = httpx.ASGITransport(VerifierApplication(verifier, feed))
    return httpx.AsyncClient(transport=transport, base_url="http://verifier")


@pytest_asyncio.fixture
async def verifier(keys: Jwks, clock: Clock) -> AsyncIterator[httpx.AsyncClient]:
    async with process(keys, clock) as client:
        yield client


def bearing(access_token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {access_token}"}


def identity(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("x-auth-")}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "PROPFIND"])
async def test_a_good_token_is_answered_with_all_headers_each_with_a_value(
    verifier: httpx.AsyncClient, method: str
) -> None:
    answer = await verifier.request(method, "/check/read:things", headers=bearing(GOOD), content=b"ignored")
    assert (answer.status_code, answer.content, answer.headers["Cache-Control"]) == (200, b"", "no-store")
    assert identity(answer) == {
        "x-auth-subject": "user00000001",
        "x-auth-actor": "-",
        "x-auth-scope": "read:things write:things",
        "x-auth-organization": "-",
        "x-auth-acr": "-",
        "x-auth-time": "-",
        "x-auth-actor-acr": "-",
        "x-auth-actor-time": "-",
    }


async def test_an_impersonation_names_its_actor(verifier: httpx.AsyncClient) -> None:
    answer = await verifier.get("/check/-", headers=bearing(IMPERSONATED))
    assert identity(answer)["x-auth-actor"] == "agent0000001"


async def test_a_user_who_signed_in_is_told_apart_from_an_impersonation(verifier: httpx.AsyncClient) -> None:
    """The sign-in of an actor is not the subject's."""
    signed_in = {"auth_time": 1_799_999_900.5, "amr": ["pwd"], "acr": "urn:service:acr:password"}
    password = ("urn:service:acr:password", "1799999900")
    for claims, own, of_actor in (
        (signed_in, password, ("-", "-")),
        ({"act": {"sub": "agent0000001"}, "actor_authentication": signed_in}, ("-", "-"), password),
        ({"acr": "a,b"}, ("a%2Cb", "-"), ("-", "-")),
    ):
        answer = await verifier.get("/check/-", headers=bearing(token(KEY, **claims)))
        told = identity(answer)
        assert (told["x-auth-acr"], told["x-auth-time"]) == own
        assert (told["x-auth-actor-acr"], told["x-auth-actor-time"]) == of_actor
        caller, none = proxied_caller(answer.headers.multi_items()), {"acr": None}
        assert caller.acr == (claims if own[0] != "-" else none)["acr"]
        assert caller.actor_acr == (signed_in if of_actor[0] != "-" else none)["acr"]
        assert caller.actor_auth_time == (None if of_actor[1] == "-" else 1_799_999_900)


async def test_a_token_of_one_organization_needs_a_check_that_expects_it(verifier: httpx.AsyncClient) -> None:
    refused = await verifier.get("/check/read:things", headers=bearing(WITHIN))
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (403, 'Bearer error="insufficient_scope"')
    accepted = await verifier.get("/check-in-organization/read:things", headers=bearing(WITHIN))
    assert identity(accepted)["x-auth-organization"] == "org000000001"


async def test_no_claim_can_end_a_header(verifier: httpx.AsyncClient) -> None:
    odd = token(KEY, sub="Zoë\r\nX-Auth-Actor: root %", scope="50% ü", act={"sub": "a b,c"})
    answer = await verifier.get("/check/-", headers=bearing(odd))
    assert identity(answer) == {
        "x-auth-subject": "Zo%C3%AB%0D%0AX-Auth-Actor:%20root%20%25",
        "x-auth-actor": "a%20b%2Cc",
        "x-auth-scope": "50%25 %C3%BC",
        "x-auth-organization": "-",
        "x-auth-acr": "-",
        "x-auth-time": "-",
        "x-auth-actor-acr": "-",
        "x-auth-actor-time": "-",
    }


@pytest.mark.parametrize(
    ("claims", "caller"),
    [
        ({"scope": ""}, ProxiedCaller(subject="user00000001", actor=None, scopes=frozenset(), organization_id=None)),
        (
            {"sub": "-", "act": {"sub": "-"}, "scope": "-", "organization_id": "-"},
            ProxiedCaller(subject="-", actor="-", scopes=frozenset("-"), organization_id="-"),
        ),
        (
            {"sub": "a,b", "act": {"sub": "%2D ü"}, "scope": "- a,b 50%", "organization_id": "--"},
            ProxiedCaller(subject="a,b", actor="%2D ü", scopes=frozenset({"-", "a,b", "50%"}), organization_id="--"),
        ),
    ],
)
async def test_what_is_told_is_read_as_it_was_claimed(
    verifier: httpx.AsyncClient, claims: dict[str, Any], caller: ProxiedCaller
) -> None:
    answer = await verifier.get("/check-in-organization/-", headers=bearing(token(KEY, **claims)))
    assert all(identity(answer).values())
    assert proxied_caller(answer.headers.multi_items()) == caller


@pytest.mark.parametrize("actor", [{}, {"sub": ""}, {"sub": None}, {"sub": 7}, {"iss": "https://other.example.com"}])
async def test_a_token_whose_actor_has_no_name_is_refused(verifier: httpx.AsyncClient, actor: dict[str, Any]) -> None:
    answer = await verifier.get("/check/-", headers=bearing(token(KEY, act=actor)))
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer error="invalid_token"')


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ([], "Bearer"),
        ([("Authorization", "Basic YTpi")], "Bearer"),
        ([("Authorization", "Bearer")], 'Bearer error="invalid_request"'),
        ([("Authorization", f"Bearer {GOOD}"), ("Authorization", f"Bearer {GOOD}")], 'Bearer error="invalid_request"'),
        ([("Authorization", f"Bearer {token(JUNK)}")], 'Bearer error="invalid_token"'),
        ([("Authorization", f"Bearer {token(KEY, aud='https://other.example.com')}")], 'Bearer error="invalid_token"'),
    ],
    ids=["nothing", "other scheme", "malformed", "repeated", "unknown key", "other audience"],
)
async def test_what_is_not_one_acceptable_token_is_a_401(
    verifier: httpx.AsyncClient, headers: list[tuple[str, str]], challenge: str
) -> None:
    answer = await verifier.get("/check/-", headers=headers)
    assert (answer.status_code, answer.headers["WWW-Authenticate"], identity(answer)) == (401, challenge, {})


async def test_a_missing_scope_is_a_403_that_names_what_is_required(verifier: httpx.AsyncClient) -> None:
    answer = await verifier.get("/check/read:things%20a%2Fb%25/~/x?scope=-", headers=bearing(GOOD))
    challenge = 'Bearer error="insufficient_scope", scope="a/b% read:things"'
    assert (answer.status_code, answer.headers["WWW-Authenticate"], identity(answer)) == (403, challenge, {})


async def test_without_keys_a_check_is_a_503_and_the_process_not_ready(keys: Jwks, clock: Clock) -> None:
    keys.status = 500
    async with process(keys, clock) as verifier:
        answer = await verifier.get("/check/-", headers=bearing(GOOD))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert [(await verifier.get(f"/health/{name}")).status_code for name in ("live", "ready")] == [200, 503]
        keys.status = 200
        clock.now += 60
        assert (await verifier.get("/health/ready")).status_code == 200


async def test_before_the_feed_is_read_impersonations_are_refused_and_counted(keys: Jwks, clock: Clock) -> None:
    feed = NotValidFeed.over_http("http://127.0.0.1:9", issuer=ISSUER)
    async with process(keys, clock, feed) as verifier:
        answers = [await verifier.get("/check/-", headers=bearing(each)) for each in (GOOD, IMPERSONATED)]
        assert [each.status_code for each in answers] == [200, 503]
        assert (await verifier.get("/health/ready")).status_code == 503
        metrics = (await verifier.get("/metrics")).text.splitlines()
    assert {
        'stead_verifier_checks_total{outcome="200"} 1.0',
        'stead_verifier_checks_total{outcome="503"} 1.0',
        "stead_verifier_feed_fresh 0.0",
        "stead_verifier_feed_age_seconds +Inf",
        "stead_verifier_feed_accepted_stale_total 1.0",
    } <= set(metrics)
