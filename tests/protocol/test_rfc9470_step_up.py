"""RFC 9470: an API demands a recent or a strong sign-in, and its challenge says which one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stead import (
    Access,
    AccessToken,
    AccessTokenMiddleware,
    AccessTokenVerifier,
    AsyncAccessTokenVerifier,
    OrganizationAware,
    Requires,
    StepUpRequired,
    TokenInvalid,
)
from stead.verify.acr import meets
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, Clock, Jwks, SigningKey, token

KEY = SigningKey("key")
PASSWORD, MFA, PHR = "urn:service:acr:password", "urn:service:acr:mfa", "phr"
ROUTES = {
    "POST /payouts": Requires("write:things", max_age_s=600, acr=MFA),
    "GET /recent": Requires("read:things", max_age_s=600),
    "GET /strong": Requires(Access.ANY_TOKEN, acr=PHR),
    "GET /acted": Requires("read:things", max_age_s=600, acr=MFA, accepts_actor=True),
    "GET /organizations/{id}": Requires(OrganizationAware("read:things"), acr=MFA),
    "GET /admin": Requires("admin", acr=MFA),
    "WEBSOCKET /feed": Requires("read:things", acr=MFA),
}
CHALLENGES = {
    "POST /payouts": f'Bearer error="insufficient_user_authentication", acr_values="{MFA}", max_age="600"',
    "GET /recent": 'Bearer error="insufficient_user_authentication", max_age="600"',
    "GET /strong": 'Bearer error="insufficient_user_authentication", acr_values="phr"',
    "GET /acted": f'Bearer error="insufficient_user_authentication", acr_values="{MFA}", max_age="600"',
    "GET /organizations/1": f'Bearer error="insufficient_user_authentication", acr_values="{MFA}"',
}


def signed_in(acr: str, ago_s: float = 10) -> dict[str, Any]:
    """Return the claims of a sign-in."""
    return {"auth_time": int(NOW - ago_s), "amr": ["pwd"], "acr": acr}


def acted(acr: str, ago_s: float = 10, **changes: Any) -> dict[str, Any]:
    """Return the claims of an exchanged token with an actor."""
    exchanged = {"act": {"sub": "agent0000001"}, "gty": "urn:ietf:params:oauth:grant-type:token-exchange"}
    return {**exchanged, "actor_authentication": signed_in(acr, ago_s), **changes}


@pytest.fixture(scope="module")
def keys() -> Iterator[Jwks]:
    with Jwks(KEY) as serving:
        yield serving


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def middleware(keys: Jwks) -> AccessTokenMiddleware:
    verifier = AsyncAccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys.url, clock=Clock())
    return AccessTokenMiddleware(application, verifier=verifier, routes=ROUTES)


async def answer_to(keys: Jwks, route: str, claims: dict[str, Any]) -> httpx.Response:
    method, path = route.split()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(middleware(keys)), base_url=AUDIENCE) as client:
        return await client.request(method, path, headers={"Authorization": f"Bearer {token(KEY, **claims)}"})


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("POST /payouts", signed_in(MFA)),
    ("POST /payouts", signed_in(PHR, 600)),
    ("POST /payouts", signed_in(MFA, 660)),  # the verifier's leeway
    ("POST /payouts", signed_in(MFA, -30)),
    ("GET /recent", signed_in(PASSWORD)),
    ("GET /strong", signed_in(PHR, 10_000_000)),
    ("GET /acted", signed_in(MFA)),
    ("GET /acted", acted(MFA)),
    ("GET /acted", acted(PHR, 600)),
    ("GET /organizations/1", {**signed_in(MFA), "organization_id": "1"}),
]


@pytest.mark.parametrize(("route", "claims"), ACCEPTED)
async def test_a_sign_in_that_meets_the_demand_is_let_in(keys: Jwks, route: str, claims: dict[str, Any]) -> None:
    assert (await answer_to(keys, route, claims)).status_code == 204


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("POST /payouts", {}),
    ("POST /payouts", signed_in(MFA, 661)),
    ("POST /payouts", signed_in(PASSWORD)),
    ("POST /payouts", signed_in("urn:other:acr:mfa")),
    ("POST /payouts", signed_in("mfa")),
    ("POST /payouts", {**signed_in(MFA), "auth_time": None}),
    ("POST /payouts", {**signed_in(MFA), "acr": None}),
    ("POST /payouts", acted(PHR)),
    ("GET /recent", {}),
    ("GET /recent", acted(MFA)),
    ("GET /strong", signed_in(MFA)),
    ("GET /acted", acted(PASSWORD)),
    ("GET /acted", acted(MFA, 661)),
    ("GET /acted", acted(MFA, actor_authentication=None)),
    ("GET /acted", acted(MFA, actor_authentication={})),
    # what stands at the top of an exchanged token is not its subject's sign-in, whatever put it there
    ("GET /acted", {**acted(MFA, actor_authentication=None), **signed_in(PHR)}),
    ("POST /payouts", {**signed_in(PHR), "gty": "urn:ietf:params:oauth:grant-type:token-exchange"}),
    ("POST /payouts", {**signed_in(PHR), "act": {"sub": "agent0000001"}}),
    ("GET /organizations/1", {**signed_in(PASSWORD), "organization_id": "1"}),
]


@pytest.mark.parametrize(("route", "claims"), REFUSED)
async def test_any_other_is_answered_with_the_challenge(keys: Jwks, route: str, claims: dict[str, Any]) -> None:
    """Section 3: 401, and every requirement, so that one new sign-in is enough."""
    answer = await answer_to(keys, route, claims)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, CHALLENGES[route])
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json()["error"] == "insufficient_user_authentication"


@pytest.mark.parametrize(
    ("route", "claims"),
    [("GET /admin", {}), ("POST /payouts", {**signed_in(MFA), "organization_id": "1"})],
)
async def test_what_a_new_sign_in_does_not_mend_is_refused_first(
    keys: Jwks, route: str, claims: dict[str, Any]
) -> None:
    """A missing scope, and an organization that the route does not look at."""
    answer = await answer_to(keys, route, claims)
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"].startswith('Bearer error="insufficient_scope"')


async def test_a_websocket_is_not_opened_without_the_sign_in(keys: Jwks) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token(KEY, **signed_in(PASSWORD))}".encode())]
    scope = {"type": "websocket", "path": "/feed", "query_string": b"", "headers": headers}
    await middleware(keys)(scope, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("kind", [AccessTokenVerifier, AsyncAccessTokenVerifier])
async def test_both_verifiers_judge_the_sign_in_of_a_token(keys: Jwks, kind: Any) -> None:
    clock = Clock()
    verifier = kind(issuer=ISSUER, audience=AUDIENCE, jwks_url=keys.url, clock=clock, leeway_s=0)
    verified = verifier.verify(token(KEY, **signed_in(MFA, 600)))
    access_token: AccessToken = verified if isinstance(verified, AccessToken) else await verified
    assert (access_token.auth_time, access_token.amr, access_token.acr) == (NOW - 600, ("pwd",), MFA)
    verifier.require_sign_in(access_token, max_age_s=600, acr=MFA)
    clock.now += 1
    with pytest.raises(StepUpRequired) as required:
        verifier.require_sign_in(access_token, max_age_s=600)
    assert required.value.challenge == CHALLENGES["GET /recent"]
    assert (required.value.max_age_s, required.value.acr_values) == (600, ())
    assert isinstance(required.value, TokenInvalid)  # a handler that knows only this one refuses, too


@pytest.mark.parametrize(
    ("challenge", "read"),
    [
        *((each, each) for each in CHALLENGES.values()),
        ('Bearer realm="x", max_age=600, error="insufficient_user_authentication"', CHALLENGES["GET /recent"]),
        (
            'Bearer error="insufficient_user_authentication", max_age="now"',
            'Bearer error="insufficient_user_authentication"',
        ),
        ('Bearer error="insufficient_scope", max_age="600"', None),
        ("Bearer", None),
        ("", None),
    ],
)
def test_a_client_reads_the_challenge(challenge: str, read: str | None) -> None:
    required = StepUpRequired.read(challenge)
    assert (None if required is None else required.challenge) == read


@pytest.mark.parametrize(
    "demand",
    [
        {},
        {"accepts_actor": True},
        *({"max_age_s": each} for each in (0, -1, True, 1.5, "600", 10**400 * -1)),
        *(
            {"acr": each}
            for each in ("", "mfa", "PHR", "urn:service:acr:", "urn::acr:mfa", 'urn:a"b:acr:mfa', f"{MFA}\n")
        ),
        *({"acr": each} for each in (7, ["phr"], f"{MFA} phr")),
    ],
)
def test_a_meaningless_demand_is_refused_when_it_is_declared(demand: Any) -> None:
    """A route that nothing can satisfy would send its users to sign in without end."""
    with pytest.raises(ValueError, match=r"max_age_s|acr"):
        Requires("read:things", **demand)


LEVELS = (PASSWORD, MFA, PHR)


@given(acr=st.sampled_from((*LEVELS, None, "", "other", "urn:other:acr:mfa")), wanted=st.sampled_from(LEVELS))
def test_a_stronger_sign_in_meets_a_weaker_demand(acr: str | None, wanted: str) -> None:
    assert meets(acr, wanted) == (acr in LEVELS and LEVELS.index(acr) >= LEVELS.index(wanted))


def test_a_value_without_a_level_meets_itself_only() -> None:
    assert [meets(acr, "gold") for acr in ("gold", "phr", None)] == [True, False, False]
