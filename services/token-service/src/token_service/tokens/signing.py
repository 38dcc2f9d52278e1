"""One signing key in memory: its algorithm, its public half as a JWK, and a fast signature.

The JOSE header is encoded once per key, and the private key stays parsed: parsing it takes as long as a hundred
    signatures.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, cast, get_args

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from identity_common.stores.coalescing import SameTurn
from token_service.tokens.lengths import require_token_fits

SigningAlgorithm = Literal["ES256", "EdDSA", "RS256"]
TokenType = Literal["at+jwt", "JWT"]
PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

_P256_BYTES: Final = 32
_RSA_BITS: Final = 2048
_ECDSA: Final = ec.ECDSA(hashes.SHA256())

Jwk = dict[str, str]


def generate_private_key(algorithm: SigningAlgorithm) -> PrivateKey:
    """Return a new private key for an algorithm."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)


def private_key_bytes(key: PrivateKey) -> bytes:
    """Return the key as unencrypted PKCS #8, to be encrypted before it is stored."""
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_private_key(encoded: bytes) -> PrivateKey:
    """Return the key that ``private_key_bytes`` encoded."""
    return cast("PrivateKey", serialization.load_der_private_key(encoded, password=None))


class _JwkDump(Protocol):
    def __call__(self, key: object, *, as_dict: Literal[True]) -> dict[str, str]: ...


def public_jwk(key: PrivateKey, *, kid: str, algorithm: SigningAlgorithm) -> Jwk:
    """Return the public half as a JWK (RFC 7517 section 4): never a private member."""
    dump = {"ES256": ECAlgorithm.to_jwk, "EdDSA": OKPAlgorithm.to_jwk, "RS256": RSAAlgorithm.to_jwk}[algorithm]
    members = cast("_JwkDump", dump)(key.public_key(), as_dict=True)
    public: Jwk = {name: members[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in members}
    return {**public, "kid": kid, "use": "sig", "alg": algorithm}


def thumbprint(key: PrivateKey, algorithm: SigningAlgorithm) -> str:
    """Return the key's ``kid``: its JWK thumbprint (RFC 7638), unique to the key."""
    members = public_jwk(key, kid="", algorithm=algorithm)
    required = {name: members[name] for name in sorted(members.keys() - {"kid", "use", "alg"})}
    return _base64url(hashlib.sha256(msgspec.json.encode(required)).digest()).decode()


def _base64url(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


class SigningKey:
    """A private key that signs access tokens and ID tokens.

    Attributes:
        kid: The key's id, in the header of every token.
        jwk: The public half.
    """

    def __init__(self, key: PrivateKey, *, kid: str, algorithm: SigningAlgorithm) -> None:
        self.kid = kid
        self.algorithm = algorithm
        self.jwk = public_jwk(key, kid=kid, algorithm=algorithm)
        self._headers = {typ: self._header(typ) for typ in get_args(TokenType)}
        self._sign = _signer(key)
        self._signatures = SameTurn(self._sign)

    def _header(self, typ: str) -> bytes:
        return _base64url(msgspec.json.encode({"alg": self.algorithm, "typ": typ, "kid": self.kid})) + b"."

    async def sign(self, claims: msgspec.Struct | Mapping[str, Any], *, typ: TokenType = "at+jwt") -> str:
        """Return the token with these claims (JWS compact serialization, RFC 7515 section 7.1).

        Args:
            claims: The payload.
            typ: The header's ``typ``: ``at+jwt`` for access tokens, ``JWT`` for ID tokens.

        Raises:
            TooLarge: The token would be longer than verifiers accept.
        """
        payload = msgspec.json.encode(claims)
        require_token_fits(payload)
        signing_input = self._headers[typ] + _base64url(payload)
        if self.algorithm == "RS256":  # takes milliseconds: off the event loop
            signature = await asyncio.to_thread(self._sign, signing_input)
        else:
            signature = await self._signatures.submit(signing_input)
        return (signing_input + b"." + _base64url(signature)).decode()

    def half_hash(self, token: str) -> str:
        """Return ``at_hash``: the left half of the token's hash, by the signature algorithm's hash function.

        Source:
            OpenID Connect Core 1.0 section 3.1.3.6; Ed25519 hashes with SHA-512 (RFC 8032 section 5.1).
        """
        hashed = (hashlib.sha512 if self.algorithm == "EdDSA" else hashlib.sha256)(token.encode()).digest()
        return _base64url(hashed[: len(hashed) // 2]).decode()


def _signer(key: PrivateKey) -> Callable[[bytes], bytes]:
    if isinstance(key, ec.EllipticCurvePrivateKey):

        def sign_es256(signing_input: bytes) -> bytes:
            r, s = decode_dss_signature(key.sign(signing_input, _ECDSA))
            return r.to_bytes(_P256_BYTES, "big") + s.to_bytes(_P256_BYTES, "big")

        return sign_es256
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign
    return lambda signing_input: key.sign(signing_input, padding.PKCS1v15(), hashes.SHA256())
