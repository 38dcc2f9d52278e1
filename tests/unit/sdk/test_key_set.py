"""Which published keys are fit for use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from stead.verify.keys import KeySet
from tests.unit.sdk.issuer import SigningKey, b64, jwks

KEY = SigningKey("current")
ED_KEY = SigningKey("edwards", "EdDSA")
RSA_KEY = SigningKey("rivest", "RS256")


def test_a_key_set_holds_the_keys_of_every_supported_kind() -> None:
    keys = KeySet.parse(jwks(KEY, ED_KEY, RSA_KEY))

    assert {kid: key.algorithm for kid in ("current", "edwards", "rivest") if (key := keys.get(kid))} == {
        "current": "ES256",
        "edwards": "EdDSA",
        "rivest": "RS256",
    }
    assert len(keys) == 3


@pytest.mark.parametrize("key", [KEY, ED_KEY, RSA_KEY], ids=lambda key: key.alg)
def test_a_key_without_alg_gets_the_one_of_its_kind(key: SigningKey) -> None:
    jwk = {name: value for name, value in key.jwk().items() if name not in {"alg", "use"}}

    found = KeySet.parse(jwks(jwk)).get(key.kid)

    assert found is not None
    assert found.algorithm == key.alg


@pytest.mark.parametrize(
    "jwk",
    [
        KEY.jwk(kid=""),
        {name: value for name, value in KEY.jwk().items() if name != "kid"},
        KEY.jwk(kid=7),
        KEY.jwk(use="enc"),
        KEY.jwk(key_ops=["sign"]),
        KEY.jwk(alg="ES384"),
        KEY.jwk(alg="HS256"),
        KEY.jwk(alg="none"),
        KEY.jwk(alg="RS256"),
        KEY.jwk(alg="EdDSA"),
        KEY.jwk(crv="P-384"),
        KEY.jwk(x=""),
        KEY.jwk(x="!"),
        KEY.jwk(x=7),
        KEY.jwk(y=KEY.jwk()["x"]),
        ED_KEY.jwk(x="AAAA"),
        RSA_KEY.jwk(n=""),
        RSA_KEY.jwk(e=""),
        {"kty": "oct", "kid": "shared", "alg": "HS256", "k": b64(b"secret" * 8)},
        {"kty": "oct", "kid": "shared", "alg": "ES256", "k": b64(b"secret" * 8)},
        {"kid": "shared"},
        "key",
        None,
        [],
        {**RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True), "kid": "small"},
    ],
)
def test_a_key_that_cannot_be_used_is_left_out_and_the_others_stay(jwk: Any) -> None:
    """Symmetric, small, ill-formed, not for signatures, of another algorithm than its kind."""
    keys = KeySet.parse(json.dumps({"keys": [jwk, ED_KEY.jwk()]}).encode())

    assert repr(keys) == "KeySet(edwards)"
    with pytest.raises(ValueError, match="no usable key"):
        KeySet.parse(json.dumps({"keys": [jwk]}).encode())


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys":7}', b"<html>", b"\xff", b'{"keys":' + b"[" * 5000])
def test_a_document_that_is_not_a_jwk_set_is_a_value_error(document: bytes) -> None:
    with pytest.raises(ValueError, match="not a JWK Set"):
        KeySet.parse(document)


def test_private_members_are_not_read() -> None:
    """Private members that an issuer publishes by mistake do not enter our memory."""
    keys = KeySet.parse(json.dumps({"keys": [KEY.private_jwk()]}).encode())

    found = keys.get("current")
    assert keys == KeySet.parse(jwks(KEY))
    assert found is not None
    assert found.verifies(b"input", KEY.sign(b"input"))
    assert not hasattr(found._key, "private_numbers")


def test_the_first_of_two_keys_with_one_kid_counts() -> None:
    other = SigningKey("current")

    found = KeySet.parse(jwks(KEY, other)).get("current")

    assert found is not None
    assert found.verifies(b"input", KEY.sign(b"input"))
    assert not found.verifies(b"input", other.sign(b"input"))


def test_key_sets_are_equal_if_they_hold_the_same_keys() -> None:
    assert KeySet.parse(jwks(KEY, ED_KEY)) == KeySet.parse(jwks(ED_KEY.jwk(use="sig", note="moved"), KEY))
    assert hash(KeySet.parse(jwks(KEY, ED_KEY))) == hash(KeySet.parse(jwks(ED_KEY, KEY)))
    assert KeySet.parse(jwks(KEY)) != KeySet.parse(jwks(KEY, ED_KEY))
    assert KeySet.parse(jwks(KEY)) != KeySet.parse(jwks(SigningKey("current")))
    assert KeySet.parse(jwks(KEY)) != KeySet.parse(jwks(KEY.jwk(kid="other")))
