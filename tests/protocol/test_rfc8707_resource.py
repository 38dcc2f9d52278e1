"""RFC 8707, Resource Indicators for OAuth 2.0: a token is bound to exactly one resource."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest

from identity_common.identifiers import new_id
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import MANAGEMENT_API, World, error_body, last_revision, outcome

GRANTS = ("client credentials", "token exchange")


@pytest.fixture(params=GRANTS)
def grant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ask(world: World, grant: str, **changes: Any) -> httpx.Response:
    if grant == "client credentials":
        return world.client_credentials(**changes)
    return world.exchange(world.subject_token(), **changes)


def test_the_token_is_for_the_resource_and_lives_as_long_as_it_says(world: World, grant: str) -> None:
    """Section 2.2: the audience is restricted to the requested resource."""
    for resource, lifetime in ((world.resource, world.resource_ttl_s), (world.other_resource, 3600)):
        answer = ask(world, grant, resource=resource)
        claims = world.claims(answer.json()["access_token"], resource)
        assert (claims["aud"], claims["exp"] - claims["iat"], answer.json()["expires_in"]) == (
            resource,
            lifetime,
            lifetime,
        )


def test_an_unknown_resource_is_an_invalid_target(world: World, grant: str) -> None:
    """Section 2: a resource that is invalid, missing, unknown or malformed is ``invalid_target``."""
    variants = [
        "https://unknown.example.com",
        world.resource + "/",
        world.resource + "#",
        world.resource + "?",
        world.resource.upper(),
        world.resource.replace("https", "http"),
        world.resource.replace("/api", "/%61pi"),
        world.resource.replace("://", "://user@"),
        f" {world.resource}",
        world.resource[:-1],
        "not a uri",
        "*",
        "x" * 2**15,
        "https://\u00e9.example",
    ]
    for resource in variants:
        answer = ask(world, grant, resource=resource)
        assert (answer.status_code, answer.json()) == (400, error_body("invalid_target", "the resource is unknown"))


def test_a_second_resource_is_refused_even_if_it_is_the_same(world: World, grant: str) -> None:
    """Section 2: several may be requested; none is dropped silently, so more than one is refused."""
    for second in (world.other_resource, world.resource, "https://unknown.example.com"):
        answer = ask(world, grant, resource=[world.resource, second])
        assert (answer.status_code, answer.json()) == (
            400,
            error_body("invalid_target", "a token is bound to one resource"),
        )


def test_an_empty_resource_is_an_absent_one(world: World, grant: str) -> None:
    """RFC 6749 section 3.2: beside another one it changes nothing, alone there is no target."""
    assert outcome(ask(world, grant, resource=[world.resource, ""])) == (200, None)
    assert outcome(ask(world, grant, resource="")) == (400, "invalid_target")


def test_an_audience_is_refused(world: World, grant: str) -> None:
    """CVE-2026-9704: RFC 8693 section 2.1 ``audience`` would change the target if it were ignored."""
    for audience in (world.resource, world.other_resource, "x"):
        answer = ask(world, grant, audience=audience)
        assert (answer.status_code, answer.json()) == (
            400,
            error_body("invalid_target", "audience is not supported; name a resource"),
        )
    assert outcome(ask(world, grant, audience="x", resource=None, scope="openid")) == (400, "invalid_target")


def test_the_management_api_is_not_a_target_of_an_exchange(world: World) -> None:
    """The service is not managed in another user's name."""
    subject_token = world.subject_token()
    answer = world.exchange(subject_token, resource=MANAGEMENT_API, scope="all")

    assert (answer.status_code, answer.json()) == (
        400,
        error_body("invalid_target", "tokens for the Management API are not issued by exchange"),
    )
    assert world.is_usable(subject_token)


@pytest.mark.parametrize("by", ["code", "refresh token"])
def test_the_management_api_is_a_target_for_users_of_clients_that_may_request_it_only(world: World, by: str) -> None:
    """Who may create applications could otherwise lead an administrator to a sign-in that yields a token."""
    management, client = world.management, world.client("Traditional")
    closed = error_body(
        "invalid_target", "the application may not request the Management API for its users (allowManagementApi)"
    )

    def may_request(allowed: bool) -> None:
        management.applications.update(client.id, custom_client_metadata={"allowManagementApi": allowed})

    sign_in = SignIn(world, client, world.reader(), resource_scopes={MANAGEMENT_API: "read users"})
    refresh_token = sign_in.tokens()["refresh_token"] if by == "refresh token" else None

    def ask() -> httpx.Response:
        target = {"resource": MANAGEMENT_API}
        return sign_in.refresh(refresh_token, **target) if refresh_token else sign_in.redeem(**target)

    answer = ask()
    assert (answer.status_code, answer.json()) == (400, closed)
    may_request(True)
    tokens = ask().json()  # at once
    assert world.claims(tokens["access_token"], MANAGEMENT_API)["scope"] == "read"

    may_request(False)
    refresh_token = tokens["refresh_token"]
    eventually(lambda: outcome(world.exchange(world.subject_token(), headers=last_revision(world))) == (200, None))
    assert ask().json() == closed
    assert outcome(sign_in.refresh(refresh_token)) == (200, None)  # for other targets


def test_reserved_names_are_not_targets(world: World, grant: str) -> None:
    """The contract: the URN of organizations, the issuer and what lies under it are never a target."""
    for resource in (
        "urn:service:resource:organizations",
        "urn:service:organization:o12345678901",
        world.stack.issuer,
        f"{world.stack.issuer}/me",
    ):
        assert outcome(ask(world, grant, resource=resource)) == (400, "invalid_target")


def test_a_resource_is_known_in_the_request_after_its_creation(world: World, grant: str) -> None:
    """The contract: an unknown resource is looked up once more, so it can be used right after its creation."""
    for _ in range(5):
        made = world.management.resources.create("New", f"https://{new_id()}.example.com/api")
        assert outcome(ask(world, grant, resource=made.indicator)) == (200, None)
        world.management.resources.delete(made.id)


@pytest.mark.parametrize("scope", [None, "read:things"])
@pytest.mark.parametrize("by", ["code", "refresh token"])
def test_a_scope_consented_for_one_resource_is_not_granted_for_another(
    world: World, by: str, scope: str | None
) -> None:
    """Section 2.2, RFC 6749 section 3.3: a scope of the same name elsewhere is another scope, although it is held."""
    roles = world.management.roles
    other = world.management.resources.create("Same scope", f"https://{new_id()}.example.com/api")
    other_scope = world.management.resources.create_scope(other.id, "read:things")
    other_role = roles.create(f"role {other.id}", "reads the same", "User", [other_scope.id]).id
    user = world.user(world.role("read:things"), other_role)

    def granted(resource: str, **consented: str) -> str:
        resource_scopes = {world.resource: consented["things"], other.indicator: consented["same"]}
        sign_in = SignIn(world, user_id=user, resource_scopes=resource_scopes)
        return sign_in.granted(by, resource=resource, scope=scope)

    both = {"things": "read:things", "same": "read:things"}
    assert [granted(world.resource, **both), granted(other.indicator, **both)] == ["read:things"] * 2
    assert granted(other.indicator, things="read:things", same="") == ""
    assert granted(world.resource, things="", same="read:things") == ""
