"""Signing: every algorithm is verified by a library that is not ours and by our SDK; a JWK has no private member."""

from __future__ import annotations

import base64
import hashlib
import json
import time

import jwt
import msgspec
import pytest

from stead.verify.access_tokens import Expectations, TokenChecker, read_token
from stead.verify.keys import KeySet
from token_service.tokens.claims import AccessTokenClaims, Actor
from token_service.tokens.keys import JwkSet
from token_service.tokens.signing import (
    SigningAlgorithm,
    SigningKey,
    generate_private_key,
    load_private_key,
    private_key_bytes,
    public_jwk,
    thumbprint,
)

ISSUER = "https://id.example.com/oidc"
AUDIENCE = "https://api.example.com"
ALGORITHMS: tuple[SigningAlgorithm, ...] = ("ES256", "EdDSA", "RS256")
PUBLIC_MEMBERS = {
    "ES256": {"kty", "crv", "x", "y", "kid", "use", "alg"},
    "EdDSA": {"kty", "crv", "x", "kid", "use", "alg"},
    "RS256": {"kty", "n", "e", "kid", "use", "alg"},
}


def claims(**changes: object) -> AccessTokenClaims:
    now = int(time.time())
    values = {
        "iss": ISSUER,
        "sub": "user00000001",
        "aud": AUDIENCE,
        "client_id": "client",
        "iat": now,
        "exp": now + 60,
        "jti": "j",
        "scope": "a b",
        **changes,
    }
    return AccessTokenClaims(**values)  # type: ignore[arg-type]


def new_key(algorithm: SigningAlgorithm) -> SigningKey:
    key = generate_private_key(algorithm)
    return SigningKey(key, kid=thumbprint(key, algorithm), algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signature_is_good_for_another_library(algorithm: SigningAlgorithm) -> None:
    """RFC 7515 section 7.1, RFC 7518 sections 3.3 and 3.4, RFC 8037 section 3.1: PyJWT verifies it."""
    key = new_key(algorithm)
    issued = claims(act=Actor("agent", Actor("robot")), gty="x")
    token = await key.sign(issued)

    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "at+jwt", "kid": key.kid}
    assert jwt.decode(
        token, jwt.PyJWK(key.jwk).key, algorithms=[algorithm], audience=AUDIENCE, issuer=ISSUER
    ) == msgspec.to_builtins(issued)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_signature_is_good_for_our_sdk(algorithm: SigningAlgorithm) -> None:
    key = new_key(algorithm)
    keys = KeySet.parse(msgspec.json.encode(JwkSet([new_key("ES256").jwk, key.jwk])))
    expected = Expectations(issuer=ISSUER, audience=AUDIENCE)

    verified = TokenChecker(expected).check(read_token(await key.sign(claims()), expected), keys=keys, now=time.time())
    assert (verified.subject, verified.scopes) == ("user00000001", {"a", "b"})


async def test_es256_signatures_have_64_bytes_whatever_their_numbers_are() -> None:
    """RFC 7518 section 3.4: R and S are padded to 32 octets each; about one in 128 signatures has a shorter number."""
    key = new_key("ES256")
    short = 0
    for _ in range(1000):
        signature = base64.urlsafe_b64decode((await key.sign(claims())).rpartition(".")[2] + "==")
        assert len(signature) == 64
        short += signature[0] == 0 or signature[32] == 0
    assert short


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_jwk_has_public_members_only(algorithm: SigningAlgorithm) -> None:
    """RFC 7517 section 9.2: a private part is never published."""
    key = generate_private_key(algorithm)
    jwk = public_jwk(key, kid="the-kid", algorithm=algorithm)

    assert set(jwk) == PUBLIC_MEMBERS[algorithm]
    assert (jwk["kid"], jwk["use"], jwk["alg"]) == ("the-kid", "sig", algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_kid_is_the_thumbprint(algorithm: SigningAlgorithm) -> None:
    """RFC 7638 section 3: the required members in lexicographic order, without white space, SHA-256, base64url."""
    key = generate_private_key(algorithm)
    jwk = public_jwk(key, kid="", algorithm=algorithm)
    required = {"ES256": ("crv", "kty", "x", "y"), "EdDSA": ("crv", "kty", "x"), "RS256": ("e", "kty", "n")}
    document = json.dumps({name: jwk[name] for name in required[algorithm]}, separators=(",", ":"))
    digest = hashlib.sha256(document.encode()).digest()

    assert thumbprint(key, algorithm) == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_the_thumbprint_of_the_rfcs_own_key() -> None:
    """RFC 7638 section 3.1: the example."""
    jwk = {
        "kty": "RSA",
        "n": (
            "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMs"
            "tn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n"
            "91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
        ),
        "e": "AQAB",
    }
    document = json.dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(document.encode()).digest()).rstrip(b"=").decode()

    assert digest == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_a_stored_key_signs_as_before(algorithm: SigningAlgorithm) -> None:
    key = generate_private_key(algorithm)
    loaded = load_private_key(private_key_bytes(key))
    kid = thumbprint(key, algorithm)

    assert thumbprint(loaded, algorithm) == kid
    token = await SigningKey(loaded, kid=kid, algorithm=algorithm).sign(claims())
    jwk = public_jwk(key, kid=kid, algorithm=algorithm)
    assert jwt.decode(token, jwt.PyJWK(jwk).key, algorithms=[algorithm], audience=AUDIENCE)["sub"] == "user00000001"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_an_altered_token_is_refused(algorithm: SigningAlgorithm) -> None:
    key = new_key(algorithm)
    header, _, signature = (await key.sign(claims())).split(".")
    _, payload, _ = (await key.sign(claims(sub="somebody-else"))).split(".")

    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(f"{header}.{payload}.{signature}", jwt.PyJWK(key.jwk).key, algorithms=[algorithm], audience=AUDIENCE)
