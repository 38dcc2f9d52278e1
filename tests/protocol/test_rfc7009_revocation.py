"""RFC 7009, OAuth 2.0 Token Revocation: a client revokes its own token and everything derived from it."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from tests.protocol.test_rfc7662_introspection import is_active
from tests.support.signing_in import SignIn
from tests.support.world import MANAGEMENT_API, NOT_ACCEPTABLE, Client, Form, World, error_body, outcome


def revoke(world: World, token: str | None, client: Client, **form: Any) -> httpx.Response:
    data: Form = {"token": token, **form}
    if client.secret is None:
        data.setdefault("client_id", client.id)
    return world.stack.http.post(
        "/oidc/token/revocation",
        data={name: value for name, value in data.items() if value is not None},
        auth=client.basic if client.secret else None,
    )


def revoked(answer: httpx.Response) -> bool:
    assert answer.status_code in {200, 400}, answer.text
    if answer.status_code == 200:
        assert answer.content == b""
    return answer.status_code == 200


@pytest.mark.parametrize("name", ["traditional", "spa", "native", "third_party"])
def test_an_access_token_is_revoked_alone(world: World, name: str) -> None:
    """Section 2.1; public clients by ``client_id``: the refresh token and its other access tokens go on."""
    sign_in = SignIn(world, getattr(world, name))
    tokens = sign_in.tokens()
    refreshed = sign_in.refreshed(tokens["refresh_token"])

    assert revoked(revoke(world, tokens["access_token"], sign_in.client))
    assert [is_active(world, each["access_token"]) for each in (tokens, refreshed)] == [False, True]
    assert outcome(sign_in.refresh(refreshed["refresh_token"])) == (200, None)


@pytest.mark.parametrize("name", ["traditional", "spa"])
def test_revoking_a_refresh_token_revokes_its_whole_family(world: World, name: str) -> None:
    """Section 2.1: SHOULD also invalidate all access tokens based on the same grant; so does an older one."""
    for place in (0, 1):
        sign_in = SignIn(world, getattr(world, name))
        first = sign_in.tokens(resource=world.resource)
        second = sign_in.refreshed(first["refresh_token"])
        assert revoked(revoke(world, (first, second)[place]["refresh_token"], sign_in.client))

        assert [is_active(world, each["access_token"]) for each in (first, second)] == [False, False]
        assert outcome(sign_in.refresh(second["refresh_token"])) == (400, "invalid_grant")


def test_other_sign_ins_go_on(world: World) -> None:
    one, other = SignIn(world), SignIn(world)
    tokens, others = one.tokens(), other.tokens()
    assert revoked(revoke(world, tokens["refresh_token"], one.client))

    assert is_active(world, others["access_token"])
    assert outcome(other.refresh(others["refresh_token"])) == (200, None)


def test_a_clients_own_token_and_an_exchanged_one_are_revoked(world: World) -> None:
    own = world.client_credentials().json()["access_token"]
    exchanged = world.exchange(world.subject_token()).json()["access_token"]

    assert revoked(revoke(world, own, world.machine))
    assert revoked(revoke(world, exchanged, world.traditional))
    assert [is_active(world, token) for token in (own, exchanged)] == [False, False]


def test_another_clients_token_is_refused_and_stays_alive(world: World) -> None:
    """Section 2.1: verifies whether the token was issued to the client; the contract: invalid_grant."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    for client in (world.spa, world.third_party, world.machine):
        for token in (tokens["access_token"], tokens["refresh_token"]):
            answer = revoke(world, token, client)
            assert (answer.status_code, answer.json()) == (
                400,
                error_body("invalid_grant", "the token is another client's"),
            )
    assert is_active(world, tokens["access_token"])
    assert outcome(sign_in.refresh(tokens["refresh_token"])) == (200, None)


@pytest.mark.parametrize("token", ["x", "ref_" + "a" * 43, "ref_", "eyJhbGciOiJub25lIn0.e30.", "x" * 40_000])
def test_an_unknown_token_is_not_an_error(world: World, token: str) -> None:
    """Section 2.2: the purpose, that the token is invalid, is achieved."""
    assert revoked(revoke(world, token, world.spa))


def test_a_revoked_token_may_be_revoked_again(world: World) -> None:
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    for token in (tokens["access_token"], tokens["refresh_token"]):
        assert [revoked(revoke(world, token, sign_in.client)) for _ in range(2)] == [True, True]


def test_other_classes_of_tokens_are_left_alone(world: World) -> None:
    """An ID token is not an access token; a subject token is not spent, a code stays good."""
    sign_in = SignIn(world)
    subject_token = world.subject_token()

    assert revoked(revoke(world, sign_in.code, sign_in.client))
    assert revoked(revoke(world, subject_token, sign_in.client))
    assert world.is_usable(subject_token)
    tokens = sign_in.tokens()
    assert revoked(revoke(world, tokens["id_token"], sign_in.client))
    assert is_active(world, tokens["access_token"])


@pytest.mark.parametrize("hint", ["access_token", "refresh_token", "unknown"])
def test_the_hint_makes_no_difference(world: World, hint: str) -> None:
    """Section 2.1: extends its search across all token types."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    assert revoked(revoke(world, tokens["access_token"], sign_in.client, token_type_hint=hint))
    assert revoked(revoke(world, tokens["refresh_token"], sign_in.client, token_type_hint=hint))

    assert not is_active(world, tokens["access_token"])


def test_authentication_and_form_are_those_of_the_token_endpoint(world: World) -> None:
    sign_in = SignIn(world)
    token = sign_in.tokens()["access_token"]

    assert outcome(revoke(world, token, Client(sign_in.client.id, "wrong"))) == (401, "invalid_client")
    assert outcome(revoke(world, token, Client(sign_in.client.id))) == (401, "invalid_client")
    assert outcome(revoke(world, token, Client("unknown"))) == (401, "invalid_client")
    assert revoke(world, "", sign_in.client).json() == error_body("invalid_request", "token is required")
    assert outcome(revoke(world, "a\0", sign_in.client)) == (400, "invalid_request")
    answer = world.stack.http.get("/oidc/token/revocation")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert is_active(world, token)


# where revocation counts


def test_a_revoked_token_is_not_an_actor_token(world: World) -> None:
    """CVE-2026-9097."""
    sign_in = SignIn(world, user_id=world.agent)
    token = sign_in.tokens()["access_token"]
    assert outcome(world.with_actor(token)) == (200, None)
    assert revoked(revoke(world, token, sign_in.client))

    assert world.with_actor(token).json() == error_body("invalid_request", NOT_ACCEPTABLE)


def test_a_revoked_token_no_longer_opens_userinfo(world: World) -> None:
    sign_in = SignIn(world)
    token = sign_in.tokens()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert world.stack.http.get("/oidc/me", headers=bearer).status_code == 200
    assert revoked(revoke(world, token, sign_in.client))

    assert world.stack.http.get("/oidc/me", headers=bearer).status_code == 401


@pytest.mark.parametrize("path", ["/api/users", "/api/configs/oidc/private-keys", "/api/organizations"])
def test_a_revoked_token_is_refused_by_every_part_of_the_management_api(world: World, path: str) -> None:
    """One path of each of the three services."""
    access = world.stack.credentials.management_api
    client = Client(access.client_id, access.client_secret)
    token = world.client_credentials(client, resource=MANAGEMENT_API, scope="all").json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    before = world.stack.http.get(path, headers=bearer)
    assert before.status_code != 401
    assert revoked(revoke(world, token, client))
    after = world.stack.http.get(path, headers=bearer)

    if before.status_code != 404:
        assert (after.status_code, after.json()["code"]) == (401, "auth.unauthorized")


def test_pages_of_registered_origins_may_revoke(world: World) -> None:
    """The contract: like the token endpoint; introspection is not for pages."""
    application = world.management.applications.create(
        name="Page", type="SPA", oidc_client_metadata={"redirectUris": ["https://page.example.com/callback"]}
    )
    for origin, allowed in (("https://page.example.com", "https://page.example.com"), ("https://evil.example", None)):
        answer = world.stack.http.post(
            "/oidc/token/revocation",
            data={"token": "x", "client_id": application.id},
            headers={"Origin": origin},
        )
        assert answer.headers.get("Access-Control-Allow-Origin") == allowed
        asked = world.stack.http.post("/oidc/token/introspection", data={"token": "x"}, headers={"Origin": origin})
        assert "Access-Control-Allow-Origin" not in asked.headers
