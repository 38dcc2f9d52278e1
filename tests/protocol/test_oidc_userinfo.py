"""Userinfo (OpenID Connect Core section 5.3) with bearer tokens (RFC 6750): the request, and the answer."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import MANAGEMENT_API, World, error_body

REFUSED = error_body("invalid_token", "the access token is not accepted")
PATH = "/oidc/me"


def me(world: World, token: str, **headers: str) -> httpx.Response:
    return world.stack.http.get(PATH, headers={"Authorization": f"Bearer {token}", **headers})


def refused(answer: httpx.Response) -> bool:
    """Return whether the token was refused; the refusal must be the one of RFC 6750 section 3."""
    if answer.status_code == 200:
        return False
    assert (answer.status_code, answer.json()) == (401, REFUSED)
    assert answer.headers["WWW-Authenticate"] == (
        'Bearer realm="userinfo", error="invalid_token", error_description="the access token is not accepted"'
    )
    return True


def test_it_returns_the_claims_of_the_granted_scopes(world: World, person: str) -> None:
    """Sections 5.3.2 and 5.4: those of the ID token, without the claims about the token itself; never stored."""
    for scope in ("openid", "openid profile", "openid email phone", "openid profile email phone address roles"):
        sign_in = SignIn(world, user_id=person, scope=scope)
        tokens = sign_in.tokens()
        in_id_token = sign_in.id_token_claims(tokens["id_token"])
        answer = me(world, tokens["access_token"])
        about_the_token = {"iss", "aud", "iat", "exp", "auth_time", "amr", "acr", "at_hash"}

        assert answer.json() == {name: in_id_token[name] for name in in_id_token.keys() - about_the_token}
        assert (answer.headers["Content-Type"], answer.headers["Cache-Control"]) == ("application/json", "no-store")


def test_a_change_is_seen_at_once(world: World, person: str) -> None:
    token = world.userinfo_token(person, scope="openid profile")
    world.management.users.update(person, name="Augusta Ada")
    eventually(lambda: me(world, token).json()["name"] == "Augusta Ada")


def test_a_token_from_an_exchange_opens_it_too(world: World) -> None:
    """The contract: it represents the subject, with an actor or without."""
    own = world.exchanged_userinfo_token(world.customer)
    acted = world.exchanged_userinfo_token(
        world.customer,
        actor_token=world.userinfo_token(),
        actor_token_type="urn:ietf:params:oauth:token-type:access_token",
    )

    assert [me(world, token).json() for token in (own, acted)] == [{"sub": world.customer}] * 2


def test_the_token_may_come_in_a_form(world: World) -> None:
    """RFC 6750 section 2.2."""
    token = world.userinfo_token()
    in_form = world.stack.http.post(PATH, data={"access_token": token, "other": "x"})
    in_header = world.stack.http.post(PATH, headers={"Authorization": f"bearer {token}"})
    with_body = world.stack.http.post(PATH, headers={"Authorization": f"Bearer {token}"}, json={"access_token": "x"})

    assert [answer.json() for answer in (in_form, in_header, with_body)] == [{"sub": world.agent}] * 3


def test_two_tokens_at_once_are_an_invalid_request(world: World) -> None:
    """RFC 6750 section 2: clients MUST NOT use more than one method."""
    token = world.userinfo_token()
    bearer = {"Authorization": f"Bearer {token}"}
    both = world.stack.http.post(PATH, data={"access_token": token}, headers=bearer)
    twice = world.stack.http.get(PATH, headers=[("Authorization", f"Bearer {token}")] * 2)
    in_form_twice = world.stack.http.post(PATH, data={"access_token": [token, token]})

    for answer in (both, twice, in_form_twice):
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert 'error="invalid_request"' in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "GET"},
        {"method": "POST"},
        {"method": "GET", "headers": {"Authorization": "Basic eDp5"}},
        {"method": "GET", "params": {"access_token": "a token"}},
        {"method": "POST", "data": {"x": "y"}},
    ],
)
def test_without_credentials_the_challenge_names_no_error(world: World, request_: dict[str, Any]) -> None:
    """RFC 6750 section 3.1; a token in the query does not count (section 2.3, RFC 9700 section 4.3.2)."""
    answer = world.stack.http.request(url=PATH, **request_)

    assert (answer.status_code, answer.headers["WWW-Authenticate"], answer.content) == (
        401,
        'Bearer realm="userinfo"',
        b"",
    )


def test_without_openid_the_scope_is_insufficient(world: World) -> None:
    """RFC 6750 section 3.1: 403, and which scope would do."""
    for token in (
        SignIn(world, scope="profile email").tokens()["access_token"],
        world.forger.access_token(
            sub=world.agent, aud=f"{world.stack.issuer}/me", client_id=world.traditional.id, scope="openid2"
        ),
    ):
        answer = me(world, token)
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
        assert answer.headers["WWW-Authenticate"].endswith('scope="openid"')


def test_only_userinfo_tokens_open_it(world: World) -> None:
    """RFC 8725 section 3.12: no access token of another audience, no ID token, no other class, no foreign signature."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens(resource=world.resource)
    good = world.claims(world.userinfo_token(), f"{world.stack.issuer}/me")
    for token in (
        tokens["access_token"],
        tokens["id_token"],
        tokens["refresh_token"],
        world.client_credentials().json()["access_token"],
        world.subject_token(),
        "x",
        "x" * 40_000,
        world.forger.sign(good, typ="JWT"),
        world.forger.sign({**good, "aud": [f"{world.stack.issuer}/me"] * 2, "iss": "https://evil.example.com"}),
        world.forger.sign({**good, "aud": MANAGEMENT_API}),
        world.forger.sign({**good, "sub": world.machine.id, "client_id": world.machine.id}),
        world.forger.sign({**good, "exp": good["iat"] - 100}),
        world.forger.sign({**good, "act": {"sub": {}}}),
    ):
        assert refused(me(world, token))
    assert not refused(me(world, world.forger.sign(good)))


@pytest.mark.parametrize("end", ["suspend", "delete", "set_password"])
def test_a_token_ends_with_its_subject_or_actor(world: World, end: str) -> None:
    """The same liveness check for subject and actor."""
    arguments = ("a new and long password",) if end == "set_password" else ()
    people = [world.user(), world.user()]
    common = {
        "aud": f"{world.stack.issuer}/me",
        "client_id": world.traditional.id,
        "scope": "openid",
        "iat": 1_700_000_000,
    }
    tokens = [
        world.forger.access_token(sub=people[0], **common),
        world.forger.access_token(sub=world.customer, act={"sub": people[1]}, **common),
    ]
    assert [refused(me(world, token)) for token in tokens] == [False, False]
    for person in people:
        getattr(world.management.users, end)(person, *arguments)
    eventually(lambda: all(refused(me(world, token)) for token in tokens))


def test_a_token_of_a_deleted_client_is_refused(world: World) -> None:
    client = world.client("Traditional", exchange=False)
    token = SignIn(world, client).tokens()["access_token"]
    world.management.applications.delete(client.id)
    eventually(lambda: refused(me(world, token)))


def test_pages_of_any_origin_may_request_it(world: World) -> None:
    """The contract: CORS for any origin, without credentials, on errors too; also the preflight."""
    origin = {"Origin": "https://anywhere.example.com"}
    for answer in (me(world, world.userinfo_token(), **origin), me(world, "x", **origin)):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "WWW-Authenticate" in answer.headers["Access-Control-Expose-Headers"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    preflight = world.stack.http.options(
        PATH,
        headers={**origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"},
    )
    assert (preflight.status_code, preflight.headers["Access-Control-Allow-Origin"]) == (204, "*")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(world: World, method: str) -> None:
    answer = world.stack.http.request(method, PATH)

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize("body", [b"access_token=a%00", b"access_token=%ff", b"access_token=" + b"a" * 70_000])
def test_a_malformed_form_is_an_invalid_request(world: World, body: bytes) -> None:
    answer = world.stack.http.post(PATH, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
