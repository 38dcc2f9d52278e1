"""Tokens of one class never pass for another (RFC 8725 section 3.12), and every verifier pins the same members.

Every candidate but the forged ones with a foreign key is signed with the current key: it has one flaw, and is refused
for that flaw.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from identity_common.identifiers import new_token_id
from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from tests.support.world import MANAGEMENT_API, NOT_ACCEPTABLE, Client, World, error_body, outcome
from token_service.tokens.signing import generate_private_key

REFUSED = error_body("invalid_request", NOT_ACCEPTABLE)
Make = Callable[[World, dict[str, Any]], str]


def segment(value: dict[str, Any] | bytes) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def signed_by_hmac(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    signing_input = f"{segment(header)}.{segment(claims)}"
    return f"{signing_input}.{segment(hmac.digest(secret, signing_input.encode(), hashlib.sha256))}"


def public_pem(world: World) -> bytes:
    return world.forger.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def with_header(**header: Any) -> Make:
    return lambda world, claims: world.forger.sign(claims, **header)


def with_claims(**changes: Any) -> Make:
    """Change claims; a callable is given the world, None leaves the claim out."""

    def make(world: World, claims: dict[str, Any]) -> str:
        merged = {**claims, **{name: value(world) if callable(value) else value for name, value in changes.items()}}
        return world.forger.sign({name: value for name, value in merged.items() if value is not None})

    return make


def ago(seconds: int) -> int:
    return int(time.time()) - seconds


def _with_own_jwk(world: World, claims: dict[str, Any]) -> str:
    key = generate_private_key("ES256")
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))  # type: ignore[arg-type]
    return world.forger.sign(claims, key=key, jwk=jwk, jku="https://evil.example.com/jwks", x5u="https://evil.example")


FORGERIES: dict[str, Make] = {
    "alg none": lambda world, claims: jwt.encode(
        claims, None, algorithm="none", headers={"typ": "at+jwt", "kid": world.forger.kid}
    ),
    "alg None and a signature": lambda world, claims: (
        f"{segment({'alg': 'None', 'typ': 'at+jwt', 'kid': world.forger.kid})}.{segment(claims)}.{segment(b'x' * 64)}"
    ),
    "alg HS256 with the public key as secret": lambda world, claims: signed_by_hmac(
        {"alg": "HS256", "typ": "at+jwt", "kid": world.forger.kid}, claims, public_pem(world)
    ),
    "alg HS256 with the JWK as secret": lambda world, claims: signed_by_hmac(
        {"alg": "HS256", "typ": "at+jwt", "kid": world.forger.kid},
        claims,
        world.stack.http.get("/oidc/jwks").content,
    ),
    "alg HS256 with an empty secret": lambda world, claims: signed_by_hmac(
        {"alg": "HS256", "typ": "at+jwt", "kid": world.forger.kid}, claims, b""
    ),
    "alg HS512": with_header(alg="HS512", key="x" * 64),
    "alg EdDSA under an ES256 kid": with_header(alg="EdDSA", key=generate_private_key("EdDSA")),
    "alg ES384": with_header(alg="ES384", key=ec.generate_private_key(ec.SECP384R1())),
    "another key under our kid": with_header(key=generate_private_key("ES256")),
    "another key that the token brings along": _with_own_jwk,
    "an unknown kid": with_header(kid="unknown"),
    "no kid": with_header(kid=""),
    "a kid that is a path": with_header(kid="../../dev/null"),
    "the kid of the next key": lambda world, claims: world.forger.sign(
        claims,
        kid=next(
            key["kid"] for key in world.stack.http.get("/oidc/jwks").json()["keys"] if key["kid"] != world.forger.kid
        ),
    ),
    "typ JWT, as an ID token has": with_header(typ="JWT"),
    "no typ": with_header(typ=None),
    "typ logout+jwt": with_header(typ="logout+jwt"),
    "typ dpop+jwt": with_header(typ="dpop+jwt"),
    "crit": with_header(crit=["exp"]),
    "another issuer": with_claims(iss="https://evil.example.com/oidc"),
    "the issuer with a slash": with_claims(iss=lambda world: world.stack.issuer + "/"),
    "the base address as issuer": with_claims(iss=lambda world: world.stack.base_url),
    "no issuer": with_claims(iss=None),
    "another audience": with_claims(aud="https://evil.example.com"),
    "no audience": with_claims(aud=None),
    "an empty audience": with_claims(aud=[]),
    "the client as audience, as an ID token has": with_claims(aud=lambda world: world.traditional.id),
    "the issuer as audience": with_claims(aud=lambda world: world.stack.issuer),
    "expired": with_claims(exp=lambda _: ago(61), iat=lambda _: ago(3661)),
    "no expiry": with_claims(exp=None),
    "an expiry that is text": with_claims(exp="9999999999"),
    "an expiry that is true": with_claims(exp=True),
    "not yet valid": with_claims(nbf=lambda _: ago(-120)),
    "no subject": with_claims(sub=None),
    "a subject that is a number": with_claims(sub=7),
    "no client": with_claims(client_id=None),
    "no id": with_claims(jti=None),
    "a scope that is a list": with_claims(scope=["all", "openid"]),
    "an actor that is text": with_claims(act="somebody"),
    "claims that are a list": lambda world, claims: _signed(world, json.dumps([claims]).encode()),
    "claims that are not JSON": lambda world, claims: _signed(world, b"{"),
    "claims twice": lambda world, claims: _cut(world.forger.sign(claims), lambda h, c, s: f"{h}.{c}.{c}.{s}"),
    "no signature": lambda world, claims: _cut(world.forger.sign(claims), lambda h, c, _: f"{h}.{c}."),
    "half a signature": lambda world, claims: _cut(world.forger.sign(claims), lambda h, c, s: f"{h}.{c}.{s[:43]}"),
    "an empty token": lambda _, __: "...",
    "16 KiB": lambda world, claims: world.forger.sign({**claims, "padding": "x" * 16_384}),
}


def _signed(world: World, payload: bytes) -> str:
    return jwt.api_jws.encode(
        payload, world.forger.key, algorithm="ES256", headers={"typ": "at+jwt", "kid": world.forger.kid}
    )


def _cut(token: str, rebuild: Callable[[str, str, str], str]) -> str:
    return rebuild(*token.split("."))


class TestAsActorToken:
    """Only a userinfo token of ours makes an actor; another token is refused, and no subject token is spent."""

    def claims(self, world: World) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": world.stack.issuer,
            "sub": world.agent,
            "aud": f"{world.stack.issuer}/me",
            "client_id": world.traditional.id,
            "iat": now,
            "exp": now + 3600,
            "jti": new_token_id(),
            "scope": "openid",
        }

    def refused(self, world: World, actor_token: str) -> None:
        subject_token = world.subject_token()
        answer = world.exchange(subject_token, actor_token=actor_token, actor_token_type=TOKEN_TYPE_ACCESS_TOKEN)
        assert (answer.status_code, answer.json()) == (400, REFUSED)
        assert world.is_usable(subject_token)

    def test_a_token_signed_like_ours_is_accepted(self, world: World) -> None:
        """The control: each case below is refused only for the reason that it names."""
        token = world.forger.sign(self.claims(world))

        assert outcome(world.with_actor(token)) == (200, None)

    @pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt"])
    def test_its_typ_may_be_written_as_the_rfc_allows(self, world: World, typ: str) -> None:
        """RFC 9068 section 4: both forms; media types compare without regard to case (RFC 7515 section 4.1.9)."""
        assert outcome(world.with_actor(world.forger.sign(self.claims(world), typ=typ))) == (200, None)

    @pytest.mark.parametrize("make", FORGERIES.values(), ids=FORGERIES)
    def test_a_forgery_is_refused(self, world: World, make: Make) -> None:
        """CVE-2026-11800, CVE-2026-16093: alg, typ, kid, iss, aud and times are pinned."""
        self.refused(world, make(world, self.claims(world)))

    def test_a_clock_may_differ_by_a_minute_and_not_more(self, world: World) -> None:
        """``exp`` and ``nbf`` get 60 s of leeway, ``iat`` is not judged."""
        claims = self.claims(world)
        inside = [{"exp": ago(50)}, {"nbf": ago(-50)}, {"iat": ago(-86_400)}]

        assert [outcome(world.with_actor(world.forger.sign({**claims, **each}))) for each in inside] == [
            (200, None)
        ] * 3

    def test_an_access_token_for_a_resource_is_not_an_actor_token(self, world: World) -> None:
        """Neither one from an exchange nor one with ``openid`` in its scope."""
        self.refused(world, world.exchange(world.subject_token()).json()["access_token"])
        self.refused(world, world.forger.sign({**self.claims(world), "aud": world.resource}))

    def test_a_clients_own_token_is_not_an_actor_token(self, world: World) -> None:
        """A machine is not an actor."""
        access = world.stack.credentials.management_api
        api_token = world.client_credentials(
            Client(access.client_id, access.client_secret), resource=MANAGEMENT_API, scope="all"
        )
        self.refused(world, world.client_credentials().json()["access_token"])
        self.refused(world, api_token.json()["access_token"])
        self.refused(world, world.forger.sign({**self.claims(world), "sub": world.machine.id}))

    def test_an_organization_token_is_not_an_actor_token(self, world: World) -> None:
        """Neither the subject's own nor a machine's, nor one with ``openid`` added."""
        organization: dict[str, Any] = {"organization_id": world.organization, "scope": "openid"}
        self.refused(world, world.exchange(world.subject_token(), resource=None, **organization).json()["access_token"])
        self.refused(world, world.exchange(world.subject_token(), **organization).json()["access_token"])
        self.refused(world, world.client_credentials(resource=None, **organization).json()["access_token"])
        self.refused(world, world.forger.sign({**self.claims(world), "aud": world.organization_audience()}))

    def test_a_subject_token_is_not_an_actor_token(self, world: World) -> None:
        """And the attempt does not spend it."""
        candidate = world.subject_token(world.agent)
        self.refused(world, candidate)

        assert world.is_usable(candidate)

    def test_a_client_secret_is_not_an_actor_token(self, world: World) -> None:
        self.refused(world, world.traditional.secret or "")

    @pytest.mark.parametrize("act", [{}, {"sub": 7}, {"sub": "a", "act": "b"}, {"sub": "a", "act": {}}])
    def test_a_malformed_chain_of_actors_is_refused(self, world: World, act: dict[str, Any]) -> None:
        """The chain is not cut off at the malformed part."""
        self.refused(world, world.forger.sign({**self.claims(world), "act": act}))


class TestAsSubjectToken:
    """Only a subject token is one."""

    @pytest.mark.parametrize(
        "kind",
        ["userinfo token", "access token", "client token", "organization token", "API token", "secret", "hash"],
    )
    def test_nothing_else_is_exchanged(self, world: World, kind: str) -> None:
        """CVE-2026-9097: no kind of access token is a subject token."""
        subject_token = world.subject_token()
        made: dict[str, Callable[[], str]] = {
            "userinfo token": world.userinfo_token,
            "access token": lambda: world.exchange(world.subject_token()).json()["access_token"],
            "client token": lambda: world.client_credentials().json()["access_token"],
            "organization token": lambda: world.exchange(
                world.subject_token(), organization_id=world.organization, resource=None
            ).json()["access_token"],
            "API token": lambda: world.forger.access_token(
                sub=world.machine.id, client_id=world.machine.id, aud=MANAGEMENT_API, scope="all"
            ),
            "secret": lambda: f"sub_{world.traditional.secret}",
            "hash": lambda: f"sub_{hashlib.sha256(subject_token.encode()).hexdigest()}",
        }
        answer = world.exchange(made[kind]())

        assert (answer.status_code, answer.json()) == (400, REFUSED)
        assert world.is_usable(subject_token)


class TestAtTheManagementApi:
    """``/api`` takes access tokens for itself, with its scopes, without an actor."""

    def claims(self, world: World) -> dict[str, Any]:
        now = int(time.time())
        client_id = world.stack.credentials.management_api.client_id
        return {
            "iss": world.stack.issuer,
            "sub": client_id,
            "aud": MANAGEMENT_API,
            "client_id": client_id,
            "iat": now,
            "exp": now + 3600,
            "jti": new_token_id(),
            "scope": "all",
        }

    def ask(self, world: World, token: str, *, scheme: str = "Bearer") -> httpx.Response:
        return world.stack.http.get("/api/applications", headers={"Authorization": f"{scheme} {token}"})

    def mint(self, world: World, token: str) -> httpx.Response:
        return world.stack.http.post(
            "/api/subject-tokens", json={"userId": world.customer}, headers={"Authorization": f"Bearer {token}"}
        )

    def refused(self, world: World, token: str) -> None:
        for answer in (self.ask(world, token), self.mint(world, token)):
            assert (answer.status_code, answer.json()["code"]) == (401, "auth.unauthorized")
            assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'

    def test_a_token_signed_like_ours_is_accepted(self, world: World) -> None:
        """The control."""
        token = world.forger.sign(self.claims(world))

        assert (self.ask(world, token).status_code, self.mint(world, token).status_code) == (200, 201)

    @pytest.mark.parametrize("make", FORGERIES.values(), ids=FORGERIES)
    def test_a_forgery_is_refused(self, world: World, make: Make) -> None:
        """CVE-2026-55669, CVE-2026-55689."""
        self.refused(world, make(world, self.claims(world)))

    def test_a_userinfo_token_is_refused(self, world: World) -> None:
        """Also with the scope of the API in it."""
        self.refused(world, world.userinfo_token())
        self.refused(
            world, world.forger.sign({**self.claims(world), "aud": f"{world.stack.issuer}/me", "scope": "openid all"})
        )

    def test_a_token_for_another_resource_is_refused(self, world: World) -> None:
        """Whatever its scope."""
        self.refused(world, world.client_credentials().json()["access_token"])
        self.refused(world, world.exchange(world.subject_token()).json()["access_token"])
        self.refused(world, world.forger.sign({**self.claims(world), "aud": world.resource}))

    def test_an_organization_token_is_refused(self, world: World) -> None:
        """Whatever its scope."""
        organization: dict[str, Any] = {"organization_id": world.organization, "resource": None, "scope": "all"}
        self.refused(world, world.client_credentials(**organization).json()["access_token"])
        self.refused(world, world.exchange(world.subject_token(), **organization).json()["access_token"])
        self.refused(world, world.forger.sign({**self.claims(world), "aud": world.organization_audience()}))

    def test_a_token_limited_to_an_organization_is_forbidden(self, world: World) -> None:
        """A member of one organization cannot manage the whole tenant, whatever the scope says."""
        token = world.forger.sign({**self.claims(world), "organization_id": world.organization})
        for answer in (self.ask(world, token), self.mint(world, token)):
            assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")

    def test_a_subject_token_and_a_secret_are_not_bearer_tokens(self, world: World) -> None:
        """And the attempt does not spend the subject token."""
        subject_token = world.subject_token()
        self.refused(world, subject_token)
        self.refused(world, world.stack.credentials.management_api.client_secret)

        assert world.is_usable(subject_token)

    def test_a_token_with_an_actor_is_forbidden(self, world: World) -> None:
        """The service is not managed in another user's name, whatever the scope says."""
        person = world.user()
        good = {**self.claims(world), "sub": person, "client_id": world.traditional.id}
        for act in ({"sub": world.agent}, {"sub": world.agent, "act": {"sub": world.customer}}, {"sub": person}):
            for answer in (
                self.ask(world, world.forger.sign({**good, "act": act})),
                self.mint(world, world.forger.sign({**good, "act": act})),
            ):
                assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")
                assert answer.headers["WWW-Authenticate"] == 'Bearer error="insufficient_scope"'
        assert self.ask(world, world.forger.sign({**good, "act": {}})).status_code == 401  # an actor without a name
        assert self.ask(world, world.forger.sign(good)).status_code == 200

    @pytest.mark.parametrize("scope", ["", "subject-tokens", "openid", "ALL", "all2", "subject-tokens-all", None])
    def test_without_the_scope_it_is_forbidden(self, world: World, scope: str | None) -> None:
        """It is compared as a scope token."""
        claims = {name: value for name, value in {**self.claims(world), "scope": scope}.items() if value is not None}
        answer = self.ask(world, world.forger.sign(claims))

        assert (answer.status_code, answer.json()["code"]) == (403, "auth.forbidden")

    @pytest.mark.parametrize("scheme", ["Basic", "DPoP", "Token", "bearerx"])
    def test_another_scheme_is_refused(self, world: World, scheme: str) -> None:
        """A bearer token needs its scheme (RFC 6750 section 2.1)."""
        answer = self.ask(world, world.forger.sign(self.claims(world)), scheme=scheme)

        assert (answer.status_code, answer.json()["code"]) == (401, "auth.authorization_token_type_not_supported")

    def test_an_exchange_does_not_issue_a_token_for_it(self, world: World) -> None:
        """Not even for a user who holds its scope."""
        api = next(each for each in world.management.resources.list() if each.indicator == MANAGEMENT_API)
        scopes = [scope.id for scope in world.management.resources.scopes(api.id)]
        role = world.management.roles.create(f"Administrator {world.agent}", "manages", "User", scopes)
        administrator = world.user(role.id)
        subject_token = world.subject_token(administrator)
        for changes in ({}, {"requested_token_type": TOKEN_TYPE_ACCESS_TOKEN}):
            answer = world.exchange(subject_token, resource=MANAGEMENT_API, scope="all", **changes)
            assert outcome(answer) == (400, "invalid_target")
        userinfo = world.exchange(subject_token, resource=None, scope="openid all subject-tokens")
        assert userinfo.json()["scope"] == "openid"
        self.refused(world, userinfo.json()["access_token"])

    def test_a_user_token_ends_with_its_user(self, world: World) -> None:
        """The same liveness check at ``/api``: deleted, suspended, password changed."""
        for end in ("suspend", "delete", "set_password"):
            person = world.user()
            token = world.forger.sign(
                {**self.claims(world), "sub": person, "client_id": world.traditional.id, "iat": ago(2)}
            )
            assert self.ask(world, token).status_code == 200
            arguments = ("a new and long password",) if end == "set_password" else ()
            getattr(world.management.users, end)(person, *arguments)
            self.refused(world, token)

    def test_a_token_of_a_deleted_client_is_refused(self, world: World) -> None:
        """CVE-2025-64521."""
        client = world.client("MachineToMachine", exchange=False)
        token = world.forger.sign({**self.claims(world), "sub": client.id, "client_id": client.id})
        assert self.ask(world, token).status_code == 200
        world.management.applications.delete(client.id)

        self.refused(world, token)


def test_the_token_endpoint_does_not_accept_a_bearer_token(world: World) -> None:
    """A token does not authenticate a client."""
    for token in (world.userinfo_token(), world.client_credentials().json()["access_token"], world.subject_token()):
        answer = world.stack.token_request(
            {"grant_type": GRANT_TOKEN_EXCHANGE, "resource": world.resource}, Authorization=f"Bearer {token}"
        )
        assert outcome(answer) == (401, "invalid_client")
