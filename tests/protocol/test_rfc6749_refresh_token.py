"""Refreshing (RFC 6749 section 6, OpenID Connect Core section 12), with rotation (RFC 9700 section 4.14.2)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from tests.support.authorizing import Stores, in_stores
from tests.support.signing_in import EVERYTHING, NOT_ACCEPTABLE, SignIn, scope_of
from tests.support.world import MANAGEMENT_API, Client, World, error_body, outcome

REFUSED = error_body("invalid_grant", NOT_ACCEPTABLE)


def rotated_long_ago(world: World, sign_in: SignIn) -> None:
    """Let the grace period of every rotated token expire."""

    async def age(stores: Stores) -> None:
        statement = "UPDATE refresh_tokens SET rotated_at = rotated_at - 11000 WHERE authorization_id = :id"
        async with stores.engine.begin() as connection:
            await connection.execute(text(statement), {"id": sign_in.authorization_id})

    in_stores(world.stack.token_settings, age)


def client_with(world: World, kind: str = "Traditional", **settings: Any) -> Client:
    application = world.management.applications.create(
        name="With settings",
        type=kind,  # type: ignore[arg-type]
        custom_client_metadata=settings,
    )
    if kind != "Traditional":
        return Client(application.id)
    return Client(application.id, world.management.applications.create_secret(application.id, "first").value)


@pytest.fixture
def sign_in(world: World) -> SignIn:
    return SignIn(world)


def test_a_refresh_issues_new_tokens(world: World, sign_in: SignIn) -> None:
    """Section 6: without target and scope a userinfo token with every scope of the consent."""
    first = sign_in.tokens()
    second = sign_in.refreshed(first["refresh_token"])

    assert set(second) == set(first)
    assert (second["scope"], second["expires_in"]) == (first["scope"], 3600)
    assert {first[name] == second[name] for name in ("access_token", "id_token", "refresh_token")} == {False}
    claims = world.claims(second["access_token"], f"{world.stack.issuer}/me")
    assert (claims["sub"], claims["jti"].partition(".")[0]) == (world.customer, sign_in.authorization_id)


def test_the_new_id_token_is_of_the_same_sign_in(world: World) -> None:
    """OpenID Connect Core section 12.2: same iss, sub, aud, auth_time; a new iat; no nonce."""
    sign_in = SignIn(world, nonce="n-0S6_WzA2Mj", auth_time=1_700_000_000_000)
    tokens = sign_in.tokens()
    first = sign_in.id_token_claims(tokens["id_token"])
    second = sign_in.id_token_claims(sign_in.refreshed(tokens["refresh_token"])["id_token"])

    same = ("iss", "sub", "aud", "auth_time")
    assert [second[name] for name in same] == [first[name] for name in same]
    assert (first["auth_time"], first["nonce"]) == (1_700_000_000, "n-0S6_WzA2Mj")
    assert "nonce" not in second
    assert second["iat"] >= first["iat"]


def test_access_tokens_say_when_the_user_signed_in(world: World) -> None:
    """RFC 9068 section 2.2.1: the same in all that derive from one authorization, whatever their target."""
    sign_in = SignIn(world, auth_time=1_700_000_000_000)
    tokens = sign_in.tokens()
    refreshed = sign_in.refreshed(tokens["refresh_token"], resource=world.resource)
    of_userinfo = world.claims(tokens["access_token"], f"{world.stack.issuer}/me")
    assert (of_userinfo["auth_time"], type(of_userinfo["auth_time"])) == (1_700_000_000, int)
    assert world.claims(refreshed["access_token"], world.resource)["auth_time"] == 1_700_000_000


def test_each_refresh_chooses_its_own_target(world: World, sign_in: SignIn) -> None:
    tokens = sign_in.tokens()
    for_resource = sign_in.refreshed(tokens["refresh_token"], resource=world.resource)
    for_userinfo = sign_in.refreshed(for_resource["refresh_token"])

    assert (scope_of(for_resource), for_resource["expires_in"]) == ("read:things write:things", world.resource_ttl_s)
    assert for_userinfo["scope"] == "email offline_access openid phone profile roles"


@pytest.mark.parametrize(
    ("requested", "granted"),
    [
        ("read:things", "read:things"),
        ("read:things openid", "read:things"),
        ("purge:things", ""),
        ("openid profile", ""),
    ],
)
def test_fewer_scopes_may_be_requested(world: World, sign_in: SignIn, requested: str, granted: str) -> None:
    """Consented ∩ held, and of the target: a scope consented to for another target is neither an error nor granted."""
    tokens = sign_in.tokens()
    refreshed = sign_in.refreshed(tokens["refresh_token"], resource=world.resource, scope=requested)

    assert refreshed["scope"] == granted
    assert ("id_token" in refreshed) == ("openid" in requested)


def test_a_narrowed_scope_is_complete_again_at_the_next_refresh(world: World, sign_in: SignIn) -> None:
    """Section 6: the scope of the refresh token stays that of the consent."""
    narrow = sign_in.refreshed(sign_in.tokens()["refresh_token"], scope="openid")

    assert narrow["scope"] == "openid"
    assert sign_in.refreshed(narrow["refresh_token"])["scope"] == "email offline_access openid phone profile roles"


@pytest.mark.parametrize(
    "scope", ["read:things  write:things", " read:things", 'read:"things"', "read:things\\", "lésen"]
)
def test_a_malformed_scope_is_refused_and_spends_nothing(world: World, scope: str) -> None:
    """Sections 3.3 and 5.2, for every grant with the parameter."""
    sign_in, subject_token = SignIn(world), world.subject_token()
    refresh_token = sign_in.tokens()["refresh_token"]
    answers = [
        sign_in.refresh(refresh_token, scope=scope),
        world.exchange(subject_token, scope=scope),
        world.client_credentials(scope=scope),
    ]

    assert [answer.json() for answer in answers] == [error_body("invalid_scope", "scope is malformed")] * 3
    assert outcome(sign_in.refresh(refresh_token)) == outcome(world.exchange(subject_token)) == (200, None)


@pytest.mark.parametrize("scope", ["read:things admin", "all", "email address", "urn:service:scope:organizations"])
def test_scopes_beyond_the_consent_are_refused(world: World, scope: str) -> None:
    """Section 6, scope escalation: invalid_scope, with or without a target; the refresh token stays as it was."""
    sign_in = SignIn(world)
    refresh_token = sign_in.tokens()["refresh_token"]
    for target in ({}, {"resource": world.resource}):
        answer = sign_in.refresh(refresh_token, scope=scope, **target)
        assert answer.json() == error_body("invalid_scope", "a requested scope was not consented to")
    rotated_long_ago(world, sign_in)
    assert outcome(sign_in.refresh(refresh_token)) == (200, None)


@pytest.mark.parametrize(
    "resource", ["other", MANAGEMENT_API, "https://unknown.example.com", "urn:service:organization:o1"]
)
def test_a_resource_that_was_not_granted_is_refused(world: World, sign_in: SignIn, resource: str) -> None:
    """RFC 8707 section 2.2: invalid_target; the same scope name of another resource is another scope."""
    refresh_token = sign_in.tokens()["refresh_token"]
    resource = world.other_resource if resource == "other" else resource

    assert outcome(sign_in.refresh(refresh_token, resource=resource)) == (400, "invalid_target")
    assert outcome(sign_in.refresh(refresh_token, audience=world.resource)) == (400, "invalid_target")
    assert outcome(sign_in.refresh(refresh_token)) == (200, None)


def test_an_organization_needs_its_scope(world: World, sign_in: SignIn) -> None:
    refresh_token = sign_in.tokens()["refresh_token"]
    for target in ({}, {"resource": world.resource}):
        answer = sign_in.refresh(refresh_token, organization_id="o12345678901", **target)
        assert (answer.status_code, answer.json()) == (
            403,
            error_body("insufficient_scope", "this needs the scope urn:service:scope:organizations"),
        )
    assert outcome(sign_in.refresh(refresh_token)) == (200, None)


def test_an_organization_is_refused_to_a_non_member(world: World) -> None:
    sign_in = SignIn(world, scope=f"{EVERYTHING} urn:service:scope:organizations")
    answer = sign_in.refresh(sign_in.tokens()["refresh_token"], organization_id="o12345678901")

    assert (answer.status_code, answer.json()) == (
        403,
        error_body("access_denied", "the subject is not a member of this organization"),
    )


def test_changes_of_permissions_count_at_the_next_refresh(world: World) -> None:
    """Consent covers every existing scope by name, held or not; each refresh looks up the held ones."""
    read, purge = world.role("read:things"), world.role("purge:things")
    user = world.user(read)
    sign_in = SignIn(world, user_id=user)
    tokens = sign_in.tokens(resource=world.resource)
    world.management.users.assign_roles(user, [purge])
    more = sign_in.refreshed(tokens["refresh_token"], resource=world.resource)
    world.management.roles.delete(read)
    answer = world.stack.token_request(
        {"grant_type": "refresh_token", "refresh_token": more["refresh_token"], "resource": world.resource},
        auth=sign_in.client.basic,
        Identity_Revision=world.management.last_revision or "",
    )

    assert [scope_of(tokens), scope_of(more), scope_of(answer.json())] == [
        "read:things",
        "purge:things read:things",
        "purge:things",
    ]


# rotation


def test_a_token_may_be_used_again_within_the_grace_period(sign_in: SignIn) -> None:
    """The answer may have been lost: the predecessor yields a sibling, and either goes on."""
    first = sign_in.tokens()["refresh_token"]
    sign_in.refreshed(first)
    sibling = sign_in.refreshed(first)["refresh_token"]

    assert outcome(sign_in.refresh(sibling)) == (200, None)


def test_a_later_reuse_ends_the_family(world: World, sign_in: SignIn) -> None:
    """RFC 9700 section 4.14.2: whichever of the two presenters is the thief."""
    first = sign_in.tokens()["refresh_token"]
    second = sign_in.refreshed(first)["refresh_token"]
    third = sign_in.refreshed(second)["refresh_token"]
    rotated_long_ago(world, sign_in)

    assert [sign_in.refresh(token).json() for token in (first, second, third)] == [REFUSED] * 3


def test_concurrent_uses_never_fork_the_family_for_good(world: World, sign_in: SignIn) -> None:
    """All uses within the grace period succeed; then one line goes on, and any other ends the family."""
    first = sign_in.tokens()["refresh_token"]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: sign_in.refresh(first), range(8)))
    siblings = [answer.json()["refresh_token"] for answer in answers]
    assert len(set(siblings)) == 8
    successor = sign_in.refreshed(siblings[0])["refresh_token"]
    rotated_long_ago(world, sign_in)

    assert sign_in.refresh(siblings[1]).json() == REFUSED
    assert sign_in.refresh(successor).json() == REFUSED


def test_an_application_may_keep_its_refresh_token(world: World) -> None:
    client = client_with(world, rotateRefreshToken=False)
    sign_in = SignIn(world, client)
    refresh_token = sign_in.tokens()["refresh_token"]

    assert [sign_in.refreshed(refresh_token)["refresh_token"] for _ in range(3)] == [refresh_token] * 3


@pytest.mark.parametrize("kind", ["SPA", "Native"])
def test_a_public_client_rotates_whatever_its_setting(world: World, kind: str) -> None:
    """RFC 9700 section 2.2.2: refresh tokens of public clients are rotated unless they are sender-constrained."""
    sign_in = SignIn(world, client_with(world, kind, rotateRefreshToken=False))
    first = sign_in.tokens()["refresh_token"]

    assert sign_in.refreshed(first)["refresh_token"] != first


async def _days_left(stores: Stores, authorization_id: str) -> list[int]:
    statement = "SELECT (expires_at - issued_at) / 86400000.0 FROM refresh_tokens WHERE authorization_id = :id"
    async with stores.engine.connect() as connection:
        rows = await connection.scalars(text(statement + " ORDER BY generation"), {"id": authorization_id})
        return [round(days) for days in rows]


def test_a_refresh_token_lives_as_long_as_the_application_says(world: World) -> None:
    sign_in = SignIn(world, client_with(world, refreshTokenTtlInDays=3))
    sign_in.refreshed(sign_in.tokens()["refresh_token"])

    def days(stores: Stores) -> Any:
        return _days_left(stores, sign_in.authorization_id)

    assert in_stores(world.stack.token_settings, days) == [3, 3]


def test_in_a_browser_the_successors_expire_with_the_first(world: World) -> None:
    sign_in = SignIn(world, world.spa)
    first = sign_in.tokens()["refresh_token"]

    async def age(stores: Stores) -> None:
        statement = (
            "UPDATE refresh_tokens SET expires_at = expires_at - 10 * 86400000::bigint WHERE authorization_id = :id"
        )
        async with stores.engine.begin() as connection:
            await connection.execute(text(statement), {"id": sign_in.authorization_id})

    in_stores(world.stack.token_settings, age)
    sign_in.refreshed(first)
    assert in_stores(world.stack.token_settings, lambda s: _days_left(s, sign_in.authorization_id)) == [4, 4]


# attacks and liveness


@pytest.mark.parametrize("thief", ["spa", "native", "third_party", "traditional_without_exchange"])
def test_another_clients_refresh_token_is_unknown_and_stays_good(world: World, sign_in: SignIn, thief: str) -> None:
    """Section 6: bound to the client; a thief of another client cannot end the family either."""
    refresh_token = sign_in.tokens()["refresh_token"]

    assert sign_in.refresh(refresh_token, client=getattr(world, thief)).json() == REFUSED
    assert outcome(sign_in.refresh(refresh_token)) == (200, None)


def test_a_public_clients_refresh_token_needs_its_client_id(world: World) -> None:
    """Any public client can send a good id, which is why tokens rotate; without an id there is no client."""
    sign_in = SignIn(world, world.spa)
    refresh_token = sign_in.tokens()["refresh_token"]

    assert outcome(sign_in.refresh(refresh_token, client_id="")) == (401, "invalid_client")
    assert outcome(sign_in.refresh(refresh_token, client=world.native)) == (400, "invalid_grant")


def test_nothing_else_passes_for_a_refresh_token_and_it_passes_for_nothing_else(world: World, sign_in: SignIn) -> None:
    """RFC 8725 section 3.12."""
    tokens = sign_in.tokens()
    for other in (
        tokens["access_token"],
        tokens["id_token"],
        world.subject_token(),
        sign_in.code,
        "ref_",
        "x" * 40_000,
    ):
        assert outcome(sign_in.refresh(other)) == (400, "invalid_grant")
    assert outcome(world.exchange(tokens["refresh_token"])) == (400, "invalid_request")
    assert outcome(world.with_actor(tokens["refresh_token"])) == (400, "invalid_request")


def test_a_machine_may_not_refresh(world: World, sign_in: SignIn) -> None:
    refresh_token = sign_in.tokens()["refresh_token"]

    assert outcome(sign_in.refresh(refresh_token, client=world.machine)) == (400, "unauthorized_client")


@pytest.mark.parametrize(
    "body",
    [
        b"grant_type=refresh_token",
        b"grant_type=refresh_token&refresh_token=",
        b"grant_type=refresh_token&refresh_token=a%00",
        b"grant_type=refresh_token&refresh_token=a&refresh_token=b",
        b"grant_type=refresh_token&refresh_token=a&scope=a&scope=b",
        b"grant_type=refresh_token&refresh_token=a&organization_id=a&organization_id=b",
        b"grant_type=refresh_token&refresh_token=" + b"a" * 70_000,
    ],
)
def test_a_missing_malformed_repeated_or_oversized_parameter_is_an_invalid_request(world: World, body: bytes) -> None:
    answer = world.stack.http.post(
        "/oidc/token",
        content=body,
        auth=world.traditional.basic,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )

    assert outcome(answer) == (400, "invalid_request")


@pytest.mark.parametrize("change", ["suspend", "suspend and back", "delete", "set_password"])
def test_the_end_of_a_sign_in_ends_its_refresh_tokens(world: World, change: str) -> None:
    """Also when the user is reinstated; a new sign-in is needed."""
    users = world.management.users
    user = users.create(name="Passing", password="correct horse 1").id
    sign_in = SignIn(world, user_id=user)
    refresh_token = sign_in.tokens()["refresh_token"]
    if change == "set_password":
        users.set_password(user, "correct horse 2")
    elif change == "delete":
        users.delete(user)
    else:
        users.suspend(user)
        if change == "suspend and back":
            users.suspend(user, suspended=False)
    answer = world.stack.token_request(
        {"grant_type": "refresh_token", "refresh_token": refresh_token},
        auth=sign_in.client.basic,
        Identity_Revision=world.management.last_revision or "",
    )

    assert (answer.status_code, answer.json()) == (400, REFUSED)


def test_a_withdrawn_consent_ends_it(world: World, sign_in: SignIn) -> None:
    refresh_token = sign_in.tokens()["refresh_token"]
    sign_in.end()

    assert sign_in.refresh(refresh_token).json() == REFUSED


def test_a_deleted_client_or_resource_is_refused(world: World) -> None:
    """CVE-2026-93999: a refresh repeats every check of the first issue."""
    management = world.management
    resource = management.resources.create("Passing", f"https://{SignIn(world).authorization_id}.example.com")
    client = client_with(world)
    sign_in = SignIn(world, client, resource_scopes={resource.indicator: ""})
    tokens = sign_in.tokens(resource=resource.indicator)
    management.resources.delete(resource.id)

    def refresh(**form: str) -> tuple[int, str | None]:
        answer = world.stack.token_request(
            {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **form},
            auth=client.basic,
            Identity_Revision=management.last_revision or "",
        )
        return outcome(answer)

    assert refresh(resource=resource.indicator) == (400, "invalid_target")
    management.applications.delete(client.id)
    assert refresh() == (401, "invalid_client")
