"""The authorization code grant at the token endpoint (RFC 6749 section 4.1.3, OpenID Connect Core section 3.1.3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.authorizing import REDIRECT_URI, Stores, in_stores
from tests.support.captured_logs import lines_of
from tests.support.signing_in import NOT_ACCEPTABLE, SignIn, scope_of
from tests.support.world import Client, World, error_body, outcome

REFUSED = error_body("invalid_grant", NOT_ACCEPTABLE)


def is_revoked(world: World, token_id: str) -> bool:
    async def ask(stores: Stores) -> bool:
        return await stores.revocations.is_revoked(token_id, "kid")

    return in_stores(world.stack.token_settings, ask)


def events_of(sign_in: SignIn, run_directory: Path) -> list[str]:
    """Return the logged events of an authorization, in order."""
    lines = lines_of(run_directory / "services.log")
    return [line["event"] for line in lines if line.get("authorization_id") == sign_in.authorization_id]


def test_a_code_gives_tokens(world: World) -> None:
    """Section 4.1.4: a userinfo token, an ID token and a refresh token; not to be stored (section 5.1)."""
    sign_in = SignIn(world)
    answer = sign_in.redeem()
    tokens = answer.json()

    assert answer.status_code == 200
    assert {name: tokens[name] for name in ("token_type", "expires_in", "scope")} == {
        "token_type": "Bearer",
        "expires_in": 3600,
        "scope": "email offline_access openid phone profile roles",
    }
    assert set(tokens) == {"access_token", "refresh_token", "id_token", "token_type", "expires_in", "scope"}
    assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
    claims = world.claims(tokens["access_token"], f"{world.stack.issuer}/me")
    assert (claims["sub"], claims["client_id"]) == (world.customer, sign_in.client.id)
    assert claims["scope"] == "email openid phone profile roles"
    assert "gty" not in claims
    authorization_id, dot, random = claims["jti"].partition(".")
    assert (authorization_id, dot, len(random)) == (sign_in.authorization_id, ".", 32)


@pytest.mark.parametrize("name", ["traditional", "spa", "native", "third_party"])
def test_every_kind_of_interactive_client_gets_them(world: World, name: str) -> None:
    client: Client = getattr(world, name)

    assert outcome(SignIn(world, client).redeem()) == (200, None)


def test_a_machine_is_refused(world: World) -> None:
    answer = SignIn(world, world.machine).redeem()

    assert answer.json() == error_body("unauthorized_client", "machine-to-machine applications have no sign-in")


@pytest.mark.parametrize("missing", ["code", "redirect_uri", "code_verifier"])
def test_a_missing_parameter_is_named_and_spends_nothing(world: World, missing: str) -> None:
    sign_in = SignIn(world)

    assert sign_in.redeem(**{missing: None}).json() == error_body("invalid_request", f"{missing} is required")
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.mark.parametrize(
    ("resource", "description"),
    [
        ("https://unknown.example.com", "the resource is unknown"),
        (["https://a.example.com", "https://b.example.com"], "a token is bound to one resource"),
    ],
)
def test_an_invalid_target_spends_nothing(world: World, resource: str, description: str) -> None:
    """The contract's order: checks that do not need the code come first."""
    sign_in = SignIn(world)

    assert sign_in.redeem(resource=resource).json() == error_body("invalid_target", description)
    assert outcome(sign_in.redeem()) == (200, None)


def test_with_a_resource_the_access_token_is_for_that_resource(world: World) -> None:
    """Consented ∩ held: the customer holds two of the three; OIDC scopes are not a resource's.

    Section 5.1: the scope of the response is that of the token, though there is a refresh token.
    """
    sign_in = SignIn(world)
    tokens = sign_in.tokens(resource=world.resource)
    claims = world.claims(tokens["access_token"], world.resource)

    assert (tokens["scope"], claims["scope"]) == ("read:things write:things",) * 2
    assert "refresh_token" in tokens
    assert (tokens["expires_in"], claims["exp"] - claims["iat"]) == (world.resource_ttl_s,) * 2
    assert sign_in.id_token_claims(tokens["id_token"])["sub"] == world.customer


def test_a_resource_that_was_not_requested_at_sign_in_is_refused(world: World) -> None:
    """RFC 8707 section 2.2; the same scope name of another resource was not consented to either."""
    answer = SignIn(world).redeem(resource=world.other_resource)

    assert answer.json() == error_body("invalid_target", "the resource was not part of the authorization request")


def test_scopes_without_consent_are_not_granted_although_they_are_held(world: World) -> None:
    sign_in = SignIn(world, resource_scopes={world.resource: "read:things"})

    assert scope_of(sign_in.tokens(resource=world.resource)) == "read:things"


def test_a_permission_revoked_between_sign_in_and_redemption_is_not_granted(world: World) -> None:
    role = world.role("read:things")
    user = world.user(role)
    sign_in = SignIn(world, user_id=user)
    world.management.roles.delete(role)
    tokens = world.stack.token_request(
        {
            "grant_type": "authorization_code",
            "code": sign_in.code,
            "redirect_uri": REDIRECT_URI,
            "code_verifier": sign_in.verifier.secret,
            "resource": world.resource,
        },
        auth=sign_in.client.basic,
        Identity_Revision=world.management.last_revision or "",
    ).json()

    assert scope_of(tokens) == ""


def test_without_openid_there_is_no_id_token_and_without_offline_access_no_refresh_token(world: World) -> None:
    """OpenID Connect Core section 3.1.2.1, section 11."""
    assert set(SignIn(world, scope="openid").tokens()) == {
        "access_token",
        "id_token",
        "token_type",
        "expires_in",
        "scope",
    }
    assert set(SignIn(world, scope="offline_access").tokens()) == {
        "access_token",
        "refresh_token",
        "token_type",
        "expires_in",
        "scope",
    }


def test_an_application_may_always_get_a_refresh_token(world: World) -> None:
    application = world.management.applications.create(
        name="Always", type="SPA", custom_client_metadata={"alwaysIssueRefreshToken": True}
    )

    assert "refresh_token" in SignIn(world, Client(application.id), scope="openid").tokens()


def test_the_scope_has_offline_access_only_beside_a_refresh_token_for_which_it_was_consented_to(world: World) -> None:
    """Section 3.3: libraries compare the granted scope with the requested one, in which it may be absent."""
    application = world.management.applications.create(
        name="Always", type="SPA", custom_client_metadata={"alwaysIssueRefreshToken": True}
    )
    always = SignIn(world, Client(application.id), scope="openid profile").tokens()

    assert ("refresh_token" in always, always["scope"]) == (True, "openid profile")
    assert SignIn(world, scope="openid").tokens()["scope"] == "openid"
    assert SignIn(world, scope="openid offline_access").tokens()["scope"] == "offline_access openid"


def test_an_organization_needs_its_scope(world: World) -> None:
    answer = SignIn(world).redeem(organization_id="o12345678901")

    assert (answer.status_code, answer.json()) == (
        403,
        error_body("insufficient_scope", "this needs the scope urn:service:scope:organizations"),
    )


# attacks


def test_a_second_use_is_refused_and_revokes_the_tokens_of_the_first(world: World) -> None:
    """Section 4.1.2: MUST deny, SHOULD revoke all tokens previously issued based on that code."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens(resource=world.resource)
    refreshed = sign_in.refreshed(tokens["refresh_token"])
    second = sign_in.redeem()

    assert (second.status_code, second.json()) == (400, REFUSED)
    for token in (tokens["refresh_token"], refreshed["refresh_token"]):
        assert sign_in.refresh(token).json() == REFUSED
    jti = world.claims(tokens["access_token"], world.resource)["jti"]
    assert is_revoked(world, jti)


def test_a_second_use_is_detected_although_redis_has_lost_the_first(world: World, run_directory: Path) -> None:
    """Section 4.1.2: the code is in Redis again, as if unused; the row in PostgreSQL records its use."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    sign_in.code = in_stores(world.stack.token_settings, lambda stores: stores.codes.issue(sign_in.stands_for))

    assert sign_in.redeem().json() == REFUSED
    assert sign_in.refresh(tokens["refresh_token"]).json() == REFUSED
    assert events_of(sign_in, run_directory) == ["authorization.ended", "code.replayed"]


def test_a_code_of_an_ended_authorization_is_refused_and_not_reported_as_a_replay(
    world: World, run_directory: Path
) -> None:
    """Nothing is issued for it, then or later; only the second use is a replay."""
    sign_in = SignIn(world)
    sign_in.end()

    assert sign_in.redeem().json() == REFUSED
    assert events_of(sign_in, run_directory) == ["authorization.ended", "code.refused"]
    assert sign_in.redeem().json() == REFUSED
    assert events_of(sign_in, run_directory)[2:] == ["code.replayed"]


@pytest.mark.heavy
def test_concurrent_uses_never_leave_a_live_token(world: World) -> None:
    """One use wins, and the others revoke its tokens, in whatever order they arrive."""
    for _ in range(5):
        sign_in = SignIn(world)
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _, sign_in=sign_in: sign_in.redeem(), range(8)))  # type: ignore[misc]
        given = [answer.json() for answer in answers if answer.status_code == 200]
        assert len(given) <= 1
        assert {outcome(answer) for answer in answers} <= {(200, None), (400, "invalid_grant")}
        for tokens in given:
            assert outcome(sign_in.refresh(tokens["refresh_token"])) == (400, "invalid_grant")
            assert is_revoked(world, f"{sign_in.authorization_id}.x")


@pytest.mark.parametrize("thief", ["spa", "third_party", "native"])
def test_another_clients_code_is_unknown_and_stays_good(world: World, thief: str) -> None:
    """Code injection; a stolen code cannot end its authorization either."""
    sign_in = SignIn(world)

    assert sign_in.redeem(client=getattr(world, thief)).json() == REFUSED
    assert outcome(sign_in.redeem()) == (200, None)
    assert sign_in.redeem(client=getattr(world, thief)).json() == REFUSED


@pytest.mark.parametrize(
    "redirect_uri",
    [
        REDIRECT_URI + "/",
        REDIRECT_URI + "?x=1",
        REDIRECT_URI.upper(),
        REDIRECT_URI.replace("app.", "evil."),
        "https://app.example.com:443/callback",
    ],
)
def test_another_redirect_uri_is_refused_and_spends_the_code(world: World, redirect_uri: str) -> None:
    """Section 4.1.3: identical values; compared byte for byte."""
    sign_in = SignIn(world)

    assert sign_in.redeem(redirect_uri=redirect_uri).json() == REFUSED
    assert sign_in.redeem().json() == REFUSED


@pytest.mark.parametrize("token", ["subject", "refresh", "access", "secret", "cod_" + "a" * 43, "cod_", "x" * 40_000])
def test_nothing_else_passes_for_a_code(world: World, token: str) -> None:
    """RFC 8725 section 3.12."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    others = {
        "subject": world.subject_token(),
        "refresh": tokens["refresh_token"],
        "access": tokens["access_token"],
        "secret": sign_in.client.secret,
    }

    assert sign_in.redeem(code=others.get(token, token)).json() == REFUSED
    assert world.is_usable(others["subject"] or "")


def test_a_code_passes_for_nothing_else(world: World) -> None:
    """Neither for a subject token nor for a refresh token; it stays good."""
    sign_in = SignIn(world)

    assert outcome(world.exchange(sign_in.code)) == (400, "invalid_request")
    assert outcome(sign_in.refresh(sign_in.code)) == (400, "invalid_grant")
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.mark.parametrize(
    "body",
    [
        b"grant_type=authorization_code&code=a%00b&redirect_uri=x&code_verifier=y",
        b"grant_type=authorization_code&code=a&code=a&redirect_uri=x&code_verifier=y",
        b"grant_type=authorization_code&code=a&redirect_uri=x&redirect_uri=x&code_verifier=y",
        b"grant_type=authorization_code&code=\xff&redirect_uri=x&code_verifier=y",
        b"grant_type=authorization_code&code=" + b"a" * 70_000,
    ],
)
def test_a_malformed_repeated_or_oversized_form_is_an_invalid_request(world: World, body: bytes) -> None:
    answer = world.stack.http.post(
        "/oidc/token",
        content=body,
        auth=world.traditional.basic,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    assert outcome(answer) == (400, "invalid_request")


# liveness


@pytest.mark.heavy
def test_a_suspended_or_deleted_user_gets_nothing(world: World) -> None:
    """Every earlier sign-in has ended; the code is spent."""
    for change in ("suspend", "delete", "set_password"):
        user = world.management.users.create(name="Passing", password="correct horse 1").id
        sign_in = SignIn(world, user_id=user)
        if change == "set_password":
            world.management.users.set_password(user, "correct horse 2")
        else:
            getattr(world.management.users, change)(user)
        world.caught_up()
        assert sign_in.redeem().json() == REFUSED, change
        assert sign_in.redeem().json() == REFUSED, change


def test_a_secret_that_is_wrong_or_missing_is_refused_before_the_code(world: World) -> None:
    """CVE-2023-0091: the client is checked first; the code is not spent."""
    sign_in = SignIn(world)
    wrong = Client(sign_in.client.id, "wrong")
    public = Client(sign_in.client.id)

    assert [outcome(sign_in.redeem(client=client)) for client in (wrong, public)] == [(401, "invalid_client")] * 2
    assert outcome(sign_in.redeem()) == (200, None)


@pytest.mark.heavy
def test_a_user_reinstated_a_moment_ago_is_not_refused(world: World) -> None:
    """A code carries the revision of the sign-in: the directory may lag behind the password check."""
    users = world.management.users
    user = users.create(name="Back").id
    for _ in range(10):
        users.suspend(user)
        users.suspend(user, suspended=False)
        assert outcome(SignIn(world, user_id=user).redeem()) == (200, None)
