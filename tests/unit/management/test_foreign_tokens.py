"""What providers and their tokens may say, however wrong: it is refused, and never an error of ours."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from identity_common import outgoing
from identity_common.outgoing import OutgoingCalls
from management_service.connectors import id_tokens
from management_service.connectors import providers as connected
from management_service.connectors.id_tokens import NotAcceptableError
from management_service.connectors.providers import ProviderError, ProviderKey, Providers
from tests.support.provider import KEYS, METADATA, Provider

ISSUER = "https://idp.example.com"
NOW = 1_800_000_000
KEY = Ed25519PrivateKey.generate()
RSA = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True)
INFINITE = float("inf")
SURROGATE = "\ud800"


def token(**changes: Any) -> str:
    claims = {"iss": ISSUER, "sub": "agent-7", "aud": "desk", "iat": NOW, "exp": 2 * NOW, **changes}
    return jwt.PyJWS().encode(json.dumps(claims).encode(), KEY, "EdDSA")


@pytest.mark.parametrize(
    "changes",
    [{"exp": INFINITE}, {"nbf": INFINITE}, {"iat": INFINITE}, {"iat": float("nan")}, {"iat": 10**400}],
)
def test_numbers_that_are_no_times_are_refused(changes: dict[str, Any]) -> None:
    key = ProviderKey(KEY.public_key(), ("EdDSA",))
    with pytest.raises(NotAcceptableError):
        id_tokens.verified_claims(
            token(**changes), key, issuer=ISSUER, clients=["desk"], max_age_s=300, now_s=NOW + 0.5
        )


@pytest.mark.parametrize("text", ["\0", SURROGATE, f"a{SURROGATE}b"])
def test_text_that_cannot_be_stored_is_refused(text: str) -> None:
    with pytest.raises(NotAcceptableError):
        id_tokens.read_unverified(token(iss=text))
    with pytest.raises(NotAcceptableError):
        id_tokens.identity_value({"sub": text}, "sub")
    assert id_tokens.methods({"amr": ["mfa", text]}) == ()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest.fixture
def providers() -> Providers:
    return Providers(OutgoingCalls(networks=["127.0.0.0/8"]))


@pytest.mark.parametrize("jwks_uri", ["https://[", "https://u:p@idp.example.com/keys", 7, None])
async def test_an_address_of_keys_that_is_garbage_is_named_so(
    provider: Provider, providers: Providers, jwks_uri: Any
) -> None:
    provider.answers[METADATA] = json.dumps({**provider.metadata, "jwks_uri": jwks_uri}).encode()
    with pytest.raises(ProviderError):
        await providers.check(provider.issuer)


@pytest.mark.parametrize(
    "key",
    [
        {"kty": ["RSA"]},
        {"kty": "EC", "crv": []},
        {"kty": "RSA", "n": 5, "e": None},
        {"kty": "OKP", "crv": "Ed25519", "x": []},
        {**RSA, "alg": "none"},
        {**RSA, "n": base64url_encode(b"\x80" + b"\1" * 1024).decode()},
        {**RSA, "e": base64url_encode(b"\1" * 200).decode()},
    ],
)
async def test_keys_that_are_garbage_or_cost_too_much_are_named_so(
    provider: Provider, providers: Providers, key: dict[str, Any]
) -> None:
    provider.answers[KEYS] = json.dumps({"keys": [key]}).encode()
    with pytest.raises(ProviderError):
        await providers.check(provider.issuer)


async def test_a_key_that_cannot_be_used_does_not_spoil_the_others(provider: Provider, providers: Providers) -> None:
    keys = [{**provider.public("first", kid="none"), "alg": "none"}, provider.public("first")]
    provider.answers[KEYS] = json.dumps({"keys": keys}).encode()
    assert await providers.key(provider.issuer, "first") is not None
    assert await providers.key(provider.issuer, "none") is None


async def test_ed25519_has_two_names(provider: Provider, providers: Providers) -> None:
    """RFC 9864 section 2.2."""
    described = OKPAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    claims = {"iss": ISSUER, "sub": "agent-7", "aud": "desk", "iat": NOW, "exp": 2 * NOW}
    for algorithm in ("EdDSA", "Ed25519"):
        provider.answers[KEYS] = json.dumps({"keys": [{**described, "kid": algorithm, "alg": algorithm}]}).encode()
        await providers.check(provider.issuer)
        key = await providers.key(provider.issuer, algorithm)
        assert key is not None
        signed = jwt.encode(claims, KEY, algorithm)
        accepted = {"issuer": ISSUER, "clients": ["desk"], "max_age_s": 300, "now_s": NOW}
        assert id_tokens.verified_claims(signed, key, **accepted) == claims


async def test_metadata_and_keys_together_take_no_longer_than_one_call(
    provider: Provider, providers: Providers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "DEADLINE_S", 30)
    monkeypatch.setattr(connected, "_DEADLINE_S", 0.3)
    provider.pause_s = 0.2
    with pytest.raises(ProviderError, match="did not answer"):
        await asyncio.wait_for(providers.key(provider.issuer, "first"), 5)


async def test_issuers_that_were_only_tried_are_not_kept(providers: Providers) -> None:
    for _ in range(3):
        with Provider() as tried:
            await providers.check(tried.issuer)
    assert not any(vars(providers)[name] for name in ("_known", "_asked_at", "_turns"))


async def test_a_slow_provider_holds_up_so_many_tokens_and_no_more(
    provider: Provider, providers: Providers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other providers go on meanwhile."""
    monkeypatch.setattr(outgoing, "DEADLINE_S", 0.3)
    provider.pause_s = 1
    waiting = [asyncio.create_task(providers.key(provider.issuer, "first")) for _ in range(70)]
    with Provider() as other:
        assert await providers.key(other.issuer, "first") is not None
    failures = [str(each) for each in await asyncio.gather(*waiting, return_exceptions=True)]
    assert Counter(failures) == {"Too many tokens wait for the provider.": 6, "The provider did not answer.": 64}
