"""What providers and their tokens may say, however wrong: it is refused, and never an error of ours."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from identity_common.outgoing import OutgoingAnswer, OutgoingCalls
from management_service.connectors import id_tokens
from management_service.connectors.id_tokens import NotAcceptableError
from management_service.connectors.providers import ProviderError, ProviderKey, Providers

ISSUER = "https://idp.example.com"
NOW = 1_800_000_000
KEY = Ed25519PrivateKey.generate()
INFINITE = float("inf")
SURROGATE = "\ud800"


class Answers(OutgoingCalls):
    """Answers instead of a provider, which a unit test cannot reach over https."""

    def __init__(self, jwks_uri: str, *keys: dict[str, Any]) -> None:
        super().__init__(networks=())
        self.metadata: dict[str, Any] = {"jwks_uri": jwks_uri}
        self.keys = keys

    async def get(self, url: str) -> OutgoingAnswer:
        issuer, found, _ = url.partition("/.well-known/")
        answer = {**self.metadata, "issuer": issuer} if found else {"keys": self.keys}
        return OutgoingAnswer(200, json.dumps(answer).encode())


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


@pytest.mark.parametrize(
    ("jwks_uri", "key"),
    [
        ("https://[", {}),
        ("https://u:p@idp.example.com/keys", {}),
        (f"{ISSUER}/keys", {"kty": ["RSA"]}),
        (f"{ISSUER}/keys", {"kty": "EC", "crv": []}),
        (f"{ISSUER}/keys", {"kty": "RSA", "n": 5, "e": None}),
        (f"{ISSUER}/keys", {"kty": "OKP", "crv": "Ed25519", "x": []}),
    ],
)
async def test_metadata_and_keys_that_are_garbage_are_named_so(jwks_uri: str, key: dict[str, Any]) -> None:
    with pytest.raises(ProviderError):
        await Providers(Answers(jwks_uri, key)).check(ISSUER)


async def test_issuers_that_were_only_tried_are_not_kept() -> None:
    public = json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(KEY.public_key()))
    providers = Providers(Answers(f"{ISSUER}/keys", public))
    for each in range(3):
        await providers.check(f"https://idp{each}.example.com")
    assert not any(vars(providers)[name] for name in ("_known", "_asked_at", "_turns"))
