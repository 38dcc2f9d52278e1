"""ID tokens (OpenID Connect Core sections 2, 3.1.3.6 and 5.4): their claims, audience, and where they are refused."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

import jwt
import pytest

from identity_common.authentication import UsedFactor
from tests.support.signing_in import SignIn
from tests.support.waiting import eventually
from tests.support.world import MANAGEMENT_API, Client, World, outcome

ORGANIZATIONS = "urn:service:scope:organizations"
ORGANIZATION_ROLES = "urn:service:scope:organization_roles"
IN_PROFILE = {
    "family_name": "Lovelace",
    "given_name": "Augusta Ada",
    "middle_name": "King",
    "nickname": "Ada",
    "preferred_username": "countess",
    "profile": "https://example.com/ada",
    "website": "https://ada.example.com",
    "gender": "female",
    "birthdate": "1815-12-10",
    "zoneinfo": "Europe/London",
    "locale": "en-GB",
}
ADDRESS = {
    "formatted": "12 St James's Square\nLondon SW1Y 4JH",
    "street_address": "12 St James's Square",
    "locality": "London",
    "region": "Greater London",
    "postal_code": "SW1Y 4JH",
    "country": "GB",
}


def claims_for(world: World, person: str, scope: str, **changes: Any) -> dict[str, Any]:
    sign_in = SignIn(world, user_id=person, scope=scope, **changes)
    return sign_in.id_token_claims(sign_in.tokens()["id_token"])


def test_it_says_who_signed_in_where_and_when(world: World) -> None:
    """Section 2, every claim; ``aud`` is one string; the header says JWT."""
    now = int(time.time())
    sign_in = SignIn(world, scope="openid", nonce="n-0S6_WzA2Mj")
    tokens = sign_in.tokens()
    claims = sign_in.id_token_claims(tokens["id_token"])
    digest = hashlib.sha256(tokens["access_token"].encode()).digest()

    assert claims == {
        "iss": world.stack.issuer,
        "sub": world.customer,
        "aud": sign_in.client.id,
        "iat": claims["iat"],
        "exp": claims["iat"] + 3600,
        "auth_time": sign_in.stands_for.authorization.auth_time // 1000,
        "amr": ["pwd"],
        "acr": "urn:service:acr:password",
        "nonce": "n-0S6_WzA2Mj",
        "at_hash": base64.urlsafe_b64encode(digest[:16]).rstrip(b"=").decode(),
    }
    assert now <= claims["iat"] <= now + 10
    assert jwt.get_unverified_header(tokens["id_token"])["typ"] == "JWT"


PASSWORD, PASSKEY, AUTHENTICATOR, RECOVERY_CODE = (
    UsedFactor("password", 1_700_000_000_999),
    UsedFactor("passkey", 1_700_000_060_000),
    UsedFactor("authenticator", 1_700_000_060_000),
    UsedFactor("recovery-code", 1_700_000_060_000),
)


@pytest.mark.parametrize(
    ("factors", "auth_time", "amr", "acr"),
    [
        ((PASSWORD,), 1_700_000_000, ["pwd"], "urn:service:acr:password"),
        ((PASSWORD, AUTHENTICATOR), 1_700_000_000, ["mfa", "otp", "pwd"], "urn:service:acr:mfa"),
        ((PASSWORD, RECOVERY_CODE), 1_700_000_000, ["mfa", "otp", "pwd"], "urn:service:acr:mfa"),
        ((PASSWORD, PASSKEY), 1_700_000_000, ["mfa", "pop", "pwd", "user"], "phr"),
        ((PASSKEY,), 1_700_000_060, ["mfa", "pop", "user"], "phr"),
    ],
    ids=["password", "authenticator", "recovery code", "password and passkey", "passkey"],
)
def test_tokens_say_how_the_user_signed_in(
    world: World, factors: tuple[UsedFactor, ...], auth_time: int, amr: list[str], acr: str
) -> None:
    """Sections 2 and 12.2 (after a refresh as before), RFC 8176, RFC 9068 section 2.2.1, RFC 9470 section 6.2."""
    sign_in = SignIn(world, factors=factors)
    tokens = sign_in.tokens()
    refreshed = sign_in.refreshed(tokens["refresh_token"])
    said = {"auth_time": auth_time, "amr": amr, "acr": acr}
    for answer in (tokens, refreshed):
        introspected = world.stack.http.post(
            "/oidc/token/introspection", data={"token": answer["access_token"]}, auth=sign_in.client.basic
        ).json()
        claims = world.claims(answer["access_token"], f"{world.stack.issuer}/me")
        assert introspected["active"]
        for each in (sign_in.id_token_claims(answer["id_token"]), claims, introspected):
            assert {name: each[name] for name in said} == said


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        ("openid", set()),
        ("openid profile", {"name", "picture", "username", "created_at", "updated_at", *IN_PROFILE}),
        ("openid address", {"address"}),
        ("openid email", {"email", "email_verified"}),
        ("openid phone", {"phone_number"}),
        ("openid roles", {"roles"}),
    ],
)
def test_each_scope_adds_its_claims(world: World, person: str, scope: str, names: set[str]) -> None:
    """Section 5.4 and the contract."""
    always = {"iss", "sub", "aud", "iat", "exp", "auth_time", "amr", "acr", "at_hash"}

    assert set(claims_for(world, person, scope)) == always | names


def test_the_claims_are_those_of_the_user(world: World, person: str) -> None:
    """Sections 5.1 and 5.1.1."""
    user = world.management.users.get(person)
    role = world.role("read:things")
    world.management.users.assign_roles(person, [role])
    claims = claims_for(world, person, "openid profile email phone address roles")

    expected = {
        "name": "Ada Lovelace",
        "picture": "https://example.com/ada.png",
        "username": user.username,
        **IN_PROFILE,
        "address": ADDRESS,
        "email": user.primary_email,
        "email_verified": False,
        "phone_number": user.primary_phone,
        "roles": [world.management.roles.get(role).name],
    }
    assert {name: claims[name] for name in expected} == expected
    assert abs(claims["created_at"] - time.time()) < 60
    assert claims["updated_at"] >= claims["created_at"]


def test_an_address_is_verified_when_an_administrator_says_so(world: World, person: str) -> None:
    world.management.users.update(person, is_email_verified=True)
    assert claims_for(world, person, "openid email")["email_verified"] is True
    world.management.users.update(person, primary_email=f"other{time.time_ns()}@example.com")
    assert claims_for(world, person, "openid email")["email_verified"] is False


def test_organizations_and_roles_in_them_need_their_scopes(world: World, person: str) -> None:
    """The scopes of the contract; a third-party application sees the organizations that were picked."""
    template = world.template
    role = world.organization_role("read:invoices")
    name = world.management.organization_roles.get(role).name
    first, second = template.organization(), template.organization()
    template.member(first, person, role)
    template.member(second, person)
    template.member(template.organization(), world.customer, role)
    scopes = f"openid {ORGANIZATIONS} {ORGANIZATION_ROLES}"
    expected = {"organizations": sorted([first, second]), "organization_roles": [f"{first}:{name}"]}

    def has_claims() -> bool:
        claims = claims_for(world, person, scopes)
        return {name: claims[name] for name in expected} == expected

    eventually(has_claims)
    assert "organization_roles" not in claims_for(world, person, f"openid {ORGANIZATIONS}")
    assert "organizations" not in claims_for(world, person, f"openid {ORGANIZATION_ROLES}")
    picked = claims_for(world, person, scopes, client=world.third_party, organizations=frozenset({second, "another"}))
    assert (picked["organizations"], picked["organization_roles"]) == ([second], [])


def test_unknown_values_are_left_out(world: World) -> None:
    nameless = world.management.users.create().id

    assert set(claims_for(world, nameless, "openid profile email phone address")) == {
        *("iss", "sub", "aud", "iat", "exp", "auth_time", "amr", "acr", "at_hash"),
        *("created_at", "updated_at"),
    }


def test_it_lives_as_long_as_the_application_says(world: World) -> None:
    application = world.management.applications.create(
        name="Brief", type="SPA", custom_client_metadata={"idTokenTtl": 60}
    )
    sign_in = SignIn(world, Client(application.id))
    claims = sign_in.id_token_claims(sign_in.tokens()["id_token"])

    assert claims["exp"] - claims["iat"] == 60


def test_it_is_not_an_access_token(world: World) -> None:
    """RFC 8725 section 3.12: neither at the Management API nor as subject, actor, code or refresh token."""
    sign_in = SignIn(world)
    id_token = sign_in.tokens()["id_token"]
    forged = world.forger.sign(
        {**sign_in.id_token_claims(id_token), "aud": MANAGEMENT_API, "client_id": "x", "jti": "x", "scope": "all"},
        typ="JWT",
    )
    for token in (id_token, forged):
        answer = world.stack.http.get("/api/users", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
    assert outcome(world.exchange(id_token)) == (400, "invalid_request")
    assert outcome(world.with_actor(id_token)) == (400, "invalid_request")
