"""Public keys: parses a JWK Set (RFC 7517) into objects that verify signatures.

Owns which keys are usable. Does not own fetching them (``key_source``) or the rules for tokens (``access_tokens``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import Algorithm

SUPPORTED_ALGORITHMS: Final = ("ES256", "EdDSA", "RS256")
"""All asymmetric, so that a published key cannot forge a token."""

# alg: kty, crv, and the public members of RFC 7518 section 6. Only these are read: private members, x5u and the like in
# a published set are ignored.
_KINDS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "ES256": ("EC", "P-256", ("x", "y")),
    "EdDSA": ("OKP", "Ed25519", ("x",)),
    "RS256": ("RSA", "", ("n", "e")),
}
_MIN_RSA_BITS: Final = 2048  # RFC 7518 section 3.3


class _Jwk(msgspec.Struct, frozen=True):
    kty: str
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    key_ops: list[str] | None = None
    crv: str = ""
    x: str = ""
    y: str = ""
    n: str = ""
    e: str = ""


class _JwkSet(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


class VerificationKey:
    """A public key, bound to the one algorithm it may verify."""

    __slots__ = ("_algorithm", "_key", "algorithm", "identity", "key_id")

    def __init__(self, *, key_id: str, algorithm: str, identity: bytes, key: Any, verifier: Algorithm) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.identity = identity
        self._key = key
        self._algorithm = verifier

    def verifies(self, signing_input: bytes, signature: bytes) -> bool:
        """Tell whether this key's private half signed these bytes."""
        return self._algorithm.verify(signing_input, self._key, signature)


class KeySet:
    """The usable keys of an issuer. Two sets are equal if they hold the same keys.

    Unusable keys are skipped: those without ``kid``, not for signatures, symmetric, or of an unsupported type or size.
    Of two keys with the same ``kid`` the first one wins.
    """

    __slots__ = ("_identity", "_keys")

    def __init__(self, keys: Iterable[VerificationKey]) -> None:
        self._keys: dict[str, VerificationKey] = {}
        for key in keys:
            self._keys.setdefault(key.key_id, key)
        self._identity = frozenset(key.identity for key in self._keys.values())

    @classmethod
    def parse(cls, document: bytes) -> KeySet:
        """Parse a JWK Set (RFC 7517 section 5).

        Raises:
            ValueError: The document is not a JWK Set, or holds no usable key.
        """
        try:
            members = msgspec.json.decode(document, type=_JwkSet).keys
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ValueError("not a JWK Set") from None
        keys = cls(key for key in map(_usable_key, members) if key is not None)
        if not keys._keys:
            raise ValueError("no usable key in the JWK Set")
        return keys

    def get(self, key_id: str) -> VerificationKey | None:
        """Return the key with this ``kid``, compared byte for byte."""
        return self._keys.get(key_id)

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"KeySet({', '.join(self._keys)})"


def _usable_key(member: msgspec.Raw) -> VerificationKey | None:
    try:
        jwk = msgspec.json.decode(member, type=_Jwk)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    algorithm = jwk.alg or next((alg for alg, kind in _KINDS.items() if kind[:2] == (jwk.kty, jwk.crv)), "")
    if not jwk.kid or jwk.use != "sig" or (jwk.key_ops is not None and "verify" not in jwk.key_ops):
        return None
    if algorithm not in _KINDS:
        return None
    kty, crv, names = _KINDS[algorithm]
    if (jwk.kty, jwk.crv) != (kty, crv):
        return None
    public = {"kty": kty, **({"crv": crv} if crv else {}), **{name: getattr(jwk, name) for name in names}}
    try:
        built = jwt.PyJWK(public, algorithm)
    except (jwt.PyJWTError, ValueError):
        return None
    if isinstance(built.key, RSAPublicKey) and built.key.key_size < _MIN_RSA_BITS:
        return None
    identity = hashlib.sha256(msgspec.json.encode([jwk.kid, algorithm, public])).digest()
    return VerificationKey(
        key_id=jwk.kid, algorithm=algorithm, identity=identity, key=built.key, verifier=built.Algorithm
    )
