"""Every signed token is short enough for the verifiers, ours and the SDK's, and revocation does not depend on that."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from stead import AccessTokenVerifier
from stead.sign_in.id_token import read_id_token
from stead.verify.signed_tokens import MAX_TOKEN_CHARS
from tests.protocol.test_rfc7009_revocation import revoke, revoked
from tests.protocol.test_rfc7662_introspection import is_active
from tests.support.signing_in import SignIn
from tests.support.world import World, error_body

TOO_LONG = error_body("invalid_scope", "a token with these scopes is longer than 16384 characters: request fewer")
ORGANIZATION_ROLES = "urn:service:scope:organization_roles"
ORGANIZATIONS = "urn:service:scope:organizations"


class Scopes:
    """Scopes of 128 characters of one API, too many for one token, and who holds them.

    Attributes:
        indicator: Of the API.
        names: The scopes, which are also organization permissions.
        user: A user who holds all of them, by API roles and in the organization.
        machine: A client that holds all of them by API roles.
    """

    def __init__(self, world: World) -> None:
        management, mark = world.management, secrets.token_hex(8)
        self.indicator = f"https://{mark}.example.com"
        self.names = [f"{mark}:{number:03}:".ljust(128, "x") for number in range(100)]
        api = management.resources.create("Many scopes", self.indicator)
        ids = [management.resources.create_scope(api.id, name).id for name in self.names]
        self.user = world.user(management.roles.create(f"all {mark}", "", "User", ids).id)
        self.machine = world.client("MachineToMachine", exchange=False)
        role = management.roles.create(f"all of machines {mark}", "", "MachineToMachine", ids)
        management.applications.assign_roles(self.machine.id, [role.id])
        permissions = [world.template.permission(name) for name in self.names]
        world.template.member(
            world.organization, self.user, world.template.role("user", permission_ids=permissions, scope_ids=ids)
        )


@pytest.fixture(scope="module")
def scopes(world: World) -> Scopes:
    found = Scopes(world)
    world.caught_up()
    return found


@pytest.fixture(params=["an API", "an API within an organization", "an organization"])
def target(world: World, scopes: Scopes, request: pytest.FixtureRequest) -> dict[str, Any]:
    resource = scopes.indicator if "API" in request.param else None
    return {
        "resource": resource,
        **({"organization_id": world.organization} if "organization" in request.param else {}),
    }


def longest(world: World, answer: httpx.Response, target: dict[str, Any]) -> int:
    """Return the length of an issued access token, which the verifiers accept."""
    assert answer.status_code == 200, answer.text
    access_token = answer.json()["access_token"]
    audience = target["resource"] or world.organization_audience()
    verifier = AccessTokenVerifier(issuer=world.stack.issuer, audience=audience)
    verifier.verify(access_token, organization_aware=True)
    assert is_active(world, access_token)
    return len(access_token)


@pytest.mark.heavy
def test_an_exchange_for_more_scopes_than_a_token_holds_spends_nothing(
    world: World, scopes: Scopes, target: dict[str, Any]
) -> None:
    """RFC 6749 section 5.2: the scope exceeds what can be granted; it is never reduced silently."""
    subject_token = world.subject_token(scopes.user)
    for count in (100, 90):
        answer = world.exchange(subject_token, scope=" ".join(scopes.names[:count]), **target)
        assert (answer.status_code, answer.json()) == (400, TOO_LONG)
    assert world.is_usable(subject_token)

    answer = world.exchange(subject_token, scope=" ".join(scopes.names[:80]), **target)

    assert answer.json()["scope"].split() == scopes.names[:80]
    assert 14_000 < longest(world, answer, target) <= MAX_TOKEN_CHARS


@pytest.mark.heavy
def test_a_client_gets_no_token_that_is_too_long(world: World, scopes: Scopes) -> None:
    target = {"resource": scopes.indicator}
    refused = world.client_credentials(scopes.machine, scope=" ".join(scopes.names), **target)
    assert (refused.status_code, refused.json()) == (400, TOO_LONG)

    answer = world.client_credentials(scopes.machine, scope=" ".join(scopes.names[:80]), **target)

    assert 14_000 < longest(world, answer, target) <= MAX_TOKEN_CHARS


@pytest.mark.heavy
def test_scopes_that_do_not_exist_are_not_counted(world: World, scopes: Scopes) -> None:
    unknown = [f"unknown:{number:03}:".ljust(128, "x") for number in range(200)]

    answer = world.exchange(world.subject_token(), scope=" ".join([*unknown, "read:things"]))

    assert answer.json()["scope"] == "read:things"


@pytest.fixture
def with_many_roles(world: World) -> Iterator[str]:
    """A user whose roles in an organization, by their names, are longer than a token."""
    mark = secrets.token_hex(4)
    roles = [
        world.management.organization_roles.create(f"{number:02} {mark} ".ljust(256, "é")).id for number in range(50)
    ]
    user = world.user()
    world.management.organizations.add_users(world.other_organization, [user])
    world.management.organizations.assign_roles_to_users(world.other_organization, [user], roles)
    world.caught_up()
    yield user
    world.management.organizations.remove_user(world.other_organization, user)
    for role in roles:
        world.management.organization_roles.delete(role)


@pytest.mark.heavy
@pytest.mark.parametrize("step", ["code", "refresh"])
def test_an_id_token_without_room_for_lists_leaves_them_to_userinfo(
    world: World, with_many_roles: str, step: str
) -> None:
    """OpenID Connect Core 1.0 section 5.4: the claims that a scope requests are returned from the userinfo endpoint."""
    scope = f"openid profile offline_access roles {ORGANIZATIONS} {ORGANIZATION_ROLES}"
    sign_in = SignIn(world, user_id=with_many_roles, scope=scope)
    tokens = sign_in.tokens()
    if step == "refresh":
        tokens = sign_in.refreshed(tokens["refresh_token"])

    assert len(tokens["id_token"]) <= MAX_TOKEN_CHARS
    assert read_id_token(tokens["id_token"])
    claims = sign_in.id_token_claims(tokens["id_token"])
    assert claims["username" if "username" in claims else "name"] is not None
    assert not claims.keys() & {"roles", "organizations", "organization_roles"}
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    about = world.stack.http.get("/oidc/me", headers=bearer).json()
    assert about["organizations"] == [world.other_organization]
    assert len(about["organization_roles"]) == 50


def test_an_id_token_without_room_for_the_profile_leaves_it_to_userinfo(world: World) -> None:
    user = world.management.users.create(name="Ada", profile={"nickname": "x" * 20_000}).id
    sign_in = SignIn(world, user_id=user, scope="openid profile")
    tokens = sign_in.tokens()

    claims = sign_in.id_token_claims(tokens["id_token"])
    assert (claims["name"], "nickname" in claims) == ("Ada", False)
    about = world.stack.http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens['access_token']}"}).json()
    assert about["nickname"] == "x" * 20_000


def test_a_token_that_is_longer_than_verifiers_accept_is_revoked(world: World) -> None:
    """RFC 7009: whatever has a valid signature; verifiers that are not ours may accept it."""
    jti = uuid.uuid4().hex
    claims = {"sub": world.customer, "aud": world.resource, "client_id": world.traditional.id, "jti": jti}
    short = world.forger.access_token(**claims)
    long = world.forger.access_token(**claims, plan="x" * 13_000)
    assert is_active(world, short)
    assert len(long) > MAX_TOKEN_CHARS
    other = revoke(world, long, world.spa)
    assert (other.status_code, other.json()["error"]) == (400, "invalid_grant")
    assert revoked(revoke(world, world.forger.access_token(**claims, plan="x" * 40_000), world.traditional))

    assert not is_active(world, short)

    another = {**claims, "jti": uuid.uuid4().hex}
    for token in (f"{world.forger.access_token(**another, plan='x' * 13_000)[:-8]}AAAAAAAA", "x" * 60_000):
        assert revoked(revoke(world, token, world.traditional))
    assert is_active(world, world.forger.access_token(**another))
