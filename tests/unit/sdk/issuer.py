"""An issuer of access tokens for the tests of the verifier: real keys, and every way to get a token wrong."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import Algorithm, ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.unit.sdk.http_server import Answer, HttpServer, Received

ISSUER = "https://id.example.com/oidc"
AUDIENCE = "https://api.example.com"
NOW = 1_800_000_000.0


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningKey:
    """A key pair that knows its ``kid`` and ``alg``."""

    def __init__(self, kid: str, alg: str = "ES256") -> None:
        self.kid = kid
        self.alg = alg
        self._private: Any
        self._algorithm: Algorithm
        if alg == "ES256":
            self._private = ec.generate_private_key(ec.SECP256R1())
            self._algorithm = ECAlgorithm(ECAlgorithm.SHA256, ec.SECP256R1)
        elif alg == "EdDSA":
            self._private = ed25519.Ed25519PrivateKey.generate()
            self._algorithm = OKPAlgorithm()
        else:
            self._private = rsa.generate_private_key(65537, 2048)
            self._algorithm = RSAAlgorithm(RSAAlgorithm.SHA256)

    def sign(self, signing_input: bytes) -> bytes:
        return self._algorithm.sign(signing_input, self._private)

    def jwk(self, **changes: Any) -> dict[str, Any]:
        public = self._algorithm.to_jwk(self._private.public_key(), as_dict=True)
        return {**public, "kid": self.kid, "alg": self.alg, "use": "sig", **changes}

    def private_jwk(self) -> dict[str, Any]:
        return {**self._algorithm.to_jwk(self._private, as_dict=True), "kid": self.kid, "alg": self.alg}


def jwks(*keys: SigningKey | dict[str, Any]) -> bytes:
    return json.dumps({"keys": [key.jwk() if isinstance(key, SigningKey) else key for key in keys]}).encode()


class Jwks(HttpServer):
    """Publishes one key, or fails with another ``status``."""

    def __init__(self, key: SigningKey) -> None:
        super().__init__(self.publish)
        self.status = 200
        self._keys = jwks(key)

    def publish(self, _: Received) -> Answer:
        return Answer(self.status, self._keys, {"Cache-Control": "max-age=600"})


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a good token; a change to None leaves the claim out."""
    good = {
        "iss": ISSUER,
        "sub": "user00000001",
        "aud": AUDIENCE,
        "client_id": "client000000000000001",
        "iat": int(NOW) - 10,
        "exp": int(NOW) + 3600,
        "jti": "token-1",
        "scope": "read:things write:things",
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def compact(header: bytes | dict[str, Any], payload: bytes | dict[str, Any], key: SigningKey) -> str:
    """Return header and payload, signed by this key, whatever they say."""
    segments = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    signing_input = ".".join(map(b64, segments))
    return f"{signing_input}.{b64(key.sign(signing_input.encode()))}"


def token(key: SigningKey, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a good token with these changes; in ``header``, None leaves a member out."""
    good = {"alg": key.alg, "typ": "at+jwt", "kid": key.kid}
    merged = {name: value for name, value in {**good, **(header or {})}.items() if value is not None}
    return compact(merged, claims(**changes), key)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
