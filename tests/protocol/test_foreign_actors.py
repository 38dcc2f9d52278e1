"""Actor tokens of other providers: ID tokens (OpenID Connect Core 1.0 section 2) in an exchange (RFC 8693)."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from identity_common.oauth import TOKEN_TYPE_ID_TOKEN
from tests.support.provider import CLIENT, KEYS, METADATA, Provider, with_secret
from tests.support.world import World, error_body, last_revision, outcome, refused_token

MFA = "urn:service:acr:mfa"


class Desk:
    """A support desk whose agents sign in at a provider of their own."""

    def __init__(self, world: World, provider: Provider) -> None:
        self.world, self.provider = world, provider
        access = world.stack.credentials.management_api
        form = {"grant_type": "client_credentials", "resource": access.resource, "scope": "all"}
        answer = world.stack.token_request(form, auth=(access.client_id, access.client_secret))
        self._authorization = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        self.connector = self.request(
            "POST",
            "/api/sso-connectors",
            providerName="OIDC",
            connectorName=f"Provider {secrets.token_hex(4)}",
            config={"issuer": provider.issuer},
            trusts={"actors": [CLIENT], "factors": [{"claim": "amr", "value": "mfa", "level": "mfa"}]},
        ).json()["id"]
        self.agent = world.user()
        self.identity = self.link(self.agent, "agent-7").json()["id"]

    def request(self, method: str, path: str, **body: Any) -> httpx.Response:
        return self.world.stack.http.request(method, path, headers=self._authorization, json=body or None)

    def change(self, **members: Any) -> httpx.Response:
        return self.request("PATCH", f"/api/sso-connectors/{self.connector}", **members)

    def link(self, user_id: str, value: str) -> httpx.Response:
        return self.request("POST", f"/api/users/{user_id}/identities", connectorId=self.connector, value=value)

    def exchange(self, id_token: str, **changes: Any) -> httpx.Response:
        return self.world.exchange(
            self.world.subject_token(), actor_token=id_token, actor_token_type=TOKEN_TYPE_ID_TOKEN, **changes
        )

    def is_refused(self, id_token: str) -> bool:
        """Tell whether a token is refused; the subject token must stay unspent then."""
        subject_token = self.world.subject_token()
        answer = self.world.exchange(subject_token, actor_token=id_token, actor_token_type=TOKEN_TYPE_ID_TOKEN)
        if not refused_token(answer):
            return False
        assert outcome(self.world.exchange(subject_token)) == (200, None)
        return True


@pytest.fixture(scope="module")
def desk(world: World) -> Iterator[Desk]:
    with Provider() as provider:
        provider.keys["rsa"] = rsa.generate_private_key(65537, 2048)
        yield Desk(world, provider)


def test_an_agent_who_signs_in_elsewhere_acts(desk: Desk) -> None:
    now = int(time.time())
    for token in (
        desk.provider.id_token("agent-7", auth_time=now - 60, amr=["pwd", "mfa"]),
        desk.provider.id_token("agent-7", auth_time=now - 60, amr=["pwd", "mfa"], key_id="rsa", algorithm="PS256"),
        desk.provider.id_token("agent-7", auth_time=now - 60, amr=["pwd", "mfa"], aud=[CLIENT], azp=CLIENT),
    ):
        answer = desk.exchange(token)
        assert outcome(answer) == (200, None), answer.text
        claims = desk.world.claims(answer.json()["access_token"], desk.world.resource)
        assert (claims["sub"], claims["act"]) == (desk.world.customer, {"sub": desk.agent})
        assert claims["actor_authentication"] == {"auth_time": now - 60, "amr": ["mfa", "pwd"], "acr": MFA}


def test_a_policy_on_actors_counts_what_the_connector_is_trusted_for(desk: Desk) -> None:
    now, policy = int(time.time()), desk.world.management.impersonation_policy
    policy.update(actor_acr="mfa", actor_max_age_s=600)
    try:
        desk.world.caught_up()
        weak = {**error_body("access_denied", "the actor must sign in more strongly"), "acr_values": MFA}
        strong, recent = {"amr": ["mfa"]}, {"auth_time": now - 60}
        assert desk.exchange(desk.provider.id_token("agent-7", **recent)).json()["acr_values"] == weak["acr_values"]
        assert desk.exchange(desk.provider.id_token("agent-7", acr="mfa", **recent)).status_code == 403
        assert desk.exchange(desk.provider.id_token("agent-7", **strong)).status_code == 403
        assert desk.exchange(desk.provider.id_token("agent-7", auth_time=now - 700, **strong)).status_code == 403
        assert outcome(desk.exchange(desk.provider.id_token("agent-7", **strong, **recent))) == (200, None)
    finally:
        policy.update(actor_acr=None, actor_max_age_s=None)
        desk.world.caught_up()


def test_tokens_that_are_not_for_this_or_not_genuine_are_refused_and_spend_nothing(desk: Desk) -> None:
    now, provider = int(time.time()), desk.provider
    stranger = ec.generate_private_key(ec.SECP256R1())
    public = provider.keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = jwt.encode(
        {"iss": provider.issuer, "sub": "agent-7", "aud": CLIENT, "iat": now, "exp": now + 60}, None, algorithm="none"
    )
    hostile = {
        "another person": provider.id_token("agent-8"),
        "another case": provider.id_token("Agent-7"),
        "another audience": provider.id_token("agent-7", aud="mail"),
        "one more audience": provider.id_token("agent-7", aud=[CLIENT, "mail"], azp=CLIENT),
        "no audience": provider.id_token("agent-7", aud=[]),
        "another authorized party": provider.id_token("agent-7", azp="mail"),
        "another issuer": provider.id_token("agent-7", iss="https://accounts.example.com"),
        "an issuer with a slash": provider.id_token("agent-7", iss=f"{provider.issuer}/"),
        "old": provider.id_token("agent-7", iat=now - 301, exp=now + 300),
        "from the future": provider.id_token("agent-7", iat=now + 600, exp=now + 900),
        "expired": provider.id_token("agent-7", iat=now - 200, exp=now - 100),
        "without exp": provider.id_token("agent-7", exp=None),
        "without iat": provider.id_token("agent-7", iat=None),
        "without sub": provider.id_token("agent-7", sub=None),
        "a number as sub": provider.id_token("agent-7", sub=7),
        "a logout token": provider.id_token("agent-7", events={}),
        "an access token": provider.id_token("agent-7", headers={"typ": "at+jwt"}),
        "a critical header": provider.id_token("agent-7", headers={"crit": ["exp"]}),
        "another key": provider.id_token("agent-7", key=stranger),
        "an unknown key": provider.id_token("agent-7", key=stranger, headers={"kid": "second"}),
        "no key": provider.id_token("agent-7", headers={"kid": None}),
        "another kind of key": provider.id_token("agent-7", headers={"kid": "rsa"}),
        "the public key as a secret": with_secret(
            provider.id_token("agent-7", key_id="rsa", algorithm="RS256"), public
        ),
        "unsigned": unsigned,
        "ours": desk.world.userinfo_token(desk.agent),
        "too long": provider.id_token("agent-7", padding="x" * 20_000),
        "garbage": "a.b.c",
        "nested": jwt.api_jws.encode(b"[" * 3000, provider.keys["first"], algorithm="ES256", headers={"kid": "first"}),
    }
    assert [name for name, token in hostile.items() if not desk.is_refused(token)] == []


def test_a_link_or_a_connector_that_is_gone_identifies_no_one(desk: Desk) -> None:
    token, agent = desk.provider.id_token("agent-7"), desk.agent
    suspended = f"/api/users/{agent}/is-suspended"
    for undone, done in (
        (lambda: desk.change(isEnabled=False), lambda: desk.change(isEnabled=True)),
        (lambda: desk.change(trusts={"actors": None}), lambda: desk.change(trusts={"actors": [CLIENT]})),
        (
            lambda: desk.request("PATCH", suspended, isSuspended=True),
            lambda: desk.request("PATCH", suspended, isSuspended=False),
        ),
    ):
        assert undone().status_code == 200
        desk.world.caught_up()
        assert desk.is_refused(token)
        assert done().status_code == 200
        desk.world.caught_up()
    assert desk.is_refused(token), "it is from before the suspension"
    headers = last_revision(desk.world)
    time.sleep(1 - time.time() % 1)  # ``iat`` has whole seconds
    assert outcome(desk.exchange(desk.provider.id_token("agent-7"), headers=headers)) == (200, None)
    assert desk.request("DELETE", f"/api/users/{agent}/identities/{desk.identity}").status_code == 204
    assert desk.is_refused(desk.provider.id_token("agent-7"))
    desk.identity = desk.link(agent, "agent-7").json()["id"]


def test_an_actor_is_one_of_whom_the_provider_says_what_is_required(desk: Desk) -> None:
    assert desk.change(requiredClaims=[{"claim": "groups", "value": "support"}]).status_code == 200
    assert desk.is_refused(desk.provider.id_token("agent-7", groups=["sales"]))
    assert outcome(desk.exchange(desk.provider.id_token("agent-7", groups=["sales", "support"]))) == (200, None)
    assert desk.change(requiredClaims=None).status_code == 200


def test_new_keys_are_found_and_a_provider_that_is_away_keeps_its_known_ones(desk: Desk) -> None:
    provider = desk.provider
    with Provider() as other:
        second = Desk(desk.world, other)
        assert outcome(second.exchange(other.id_token("agent-7"))) == (200, None)
        asked = len(other.requests)
        assert outcome(second.exchange(other.id_token("agent-7"))) == (200, None)
        assert len(other.requests) == asked, "its keys are known"
        other.answers = dict.fromkeys((KEYS, METADATA), 500)
        assert second.is_refused(other.id_token("agent-7", key=provider.keys["first"], headers={"kid": "new"}))
        assert outcome(second.exchange(other.id_token("agent-7"))) == (200, None)


def test_what_is_no_provider_is_not_stored(desk: Desk) -> None:
    with Provider() as provider:
        weak = rsa.generate_private_key(65537, 1024)
        provider.keys["weak"] = weak
        symmetric = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}

        def problem(answers: dict[str, Any]) -> str:
            provider.answers = {
                path: each if isinstance(each, int) else json.dumps(each).encode() for path, each in answers.items()
            }
            answer = desk.request(
                "POST",
                "/api/sso-connectors",
                providerName="OIDC",
                connectorName="Not usable",
                config={"issuer": provider.issuer},
            )
            assert (answer.status_code, answer.json()["code"]) == (422, "connector.provider_unusable"), answer.text
            return str(answer.json()["message"])

        assert "redirect" in problem({METADATA: 302})
        assert "status 503" in problem({METADATA: 503})
        assert "not those of OpenID Connect" in problem({METADATA: {"issuer": provider.issuer}})
        assert "not those of OpenID Connect" in problem({METADATA: []})
        assert "another issuer" in problem({METADATA: {**provider.metadata, "issuer": f"{provider.issuer}/"}})
        assert "no public address" not in problem(
            {METADATA: {**provider.metadata, "jwks_uri": "https://10.0.0.1/keys"}}
        )
        assert "must begin with https" in problem({METADATA: {**provider.metadata, "jwks_uri": "http://10.0.0.1/keys"}})
        assert "no JSON Web Key Set" in problem({KEYS: {"keys": "none"}})
        unusable = [symmetric, provider.public("weak"), provider.public("first", use="enc"), {"kty": "EC"}]
        assert "no public key" in problem({KEYS: {"keys": unusable}})
        assert "more than 50 keys" in problem({KEYS: {"keys": [provider.public("first")] * 51}})
