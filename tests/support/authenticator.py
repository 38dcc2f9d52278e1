"""An authenticator with a passkey, as browsers answer for it: encoded by fido2, which shares no code with ours."""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from fido2.cose import ES256, ES384, RS256, EdDSA
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

ORIGIN: Final = "http://localhost:3000"
RP_ID: Final = "localhost"

UP: Final = AuthenticatorData.FLAG.UP
UV: Final = AuthenticatorData.FLAG.UV
BE: Final = AuthenticatorData.FLAG.BE
BS: Final = AuthenticatorData.FLAG.BS
_ATTESTED: Final = AuthenticatorData.FLAG.AT
VERIFIED: Final = UP | UV
SYNCED: Final = VERIFIED | BE | BS

_KEYS: Final[dict[str, tuple[Any, Any, tuple[Any, ...]]]] = {
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), ES256, (ec.ECDSA(SHA256()),)),
    "ES384": (lambda: ec.generate_private_key(ec.SECP384R1()), ES384, (ec.ECDSA(SHA384()),)),
    "EdDSA": (Ed25519PrivateKey.generate, EdDSA, ()),
    "RS256": (lambda: rsa.generate_private_key(65537, 2048), RS256, (PKCS1v15(), SHA256())),
}


def base64url(value: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def new_challenge() -> str:
    """Return a challenge as token-service makes one."""
    return base64url(secrets.token_bytes(32))


class Authenticator:
    """Holds one passkey.

    Args:
        counter: Of the first answer; None: it has no counter, and always says 0.
        algorithm: Of its key, by the name in COSE.
    """

    def __init__(
        self,
        *,
        rp_id: str = RP_ID,
        origin: str = ORIGIN,
        counter: int | None = None,
        flags: AuthenticatorData.FLAG = SYNCED,
        aaguid: bytes = bytes(16),
        algorithm: str = "ES256",
    ) -> None:
        make, self._key_type, self._signature = _KEYS[algorithm]
        self.key = make()
        self.credential_id = secrets.token_bytes(32)
        self.user_handle: bytes | None = None
        self.rp_id, self.origin, self.counter, self.flags, self.aaguid = rp_id, origin, counter, flags, aaguid

    def create(self, challenge: str, *, user_handle: bytes, **changed: Any) -> str:
        """Return the JSON of a new credential."""
        self.user_handle = user_handle
        credential = AttestedCredentialData.create(
            self.aaguid,
            self.credential_id,
            self._key_type.from_cryptography_key(self.key.public_key()),
        )
        data = self._data(_ATTESTED, credential, changed)
        client_data = self._client_data("webauthn.create", challenge, changed)
        statement = changed.pop("statement", {})
        if changed.pop("attests_itself", False):
            signed = data + hashlib.sha256(client_data).digest()
            changed["fmt"], statement = "packed", {"alg": self._key_type.ALGORITHM, "sig": self.sign(signed)}
        attestation = AttestationObject.create(changed.pop("fmt", "none"), data, statement)
        return self._answer(
            {
                "clientDataJSON": base64url(client_data),
                "attestationObject": base64url(attestation),
                "transports": ["internal", "hybrid", "teleport"],
            },
        )

    def get(self, challenge: str, **changed: Any) -> str:
        """Return the JSON of an assertion."""
        if self.counter is not None:
            self.counter += 1
        handle = changed.pop("user_handle", self.user_handle)
        credential_id = changed.pop("credential_id", self.credential_id)
        data = self._data(AuthenticatorData.FLAG(0), b"", changed)
        client_data = self._client_data("webauthn.get", challenge, changed)
        signed = data + hashlib.sha256(client_data).digest()
        return self._answer(
            {
                "clientDataJSON": base64url(client_data),
                "authenticatorData": base64url(data),
                "signature": base64url(changed.pop("signature", None) or self.sign(signed)),
                "userHandle": None if handle is None else base64url(handle),
            },
            credential_id,
        )

    def sign(self, data: bytes) -> bytes:
        """Return a signature by the passkey."""
        return bytes(self.key.sign(data, *self._signature))

    def _data(self, more: AuthenticatorData.FLAG, credential: bytes, changed: dict[str, Any]) -> AuthenticatorData:
        data: AuthenticatorData = AuthenticatorData.create(
            hashlib.sha256(changed.pop("rp_id", self.rp_id).encode()).digest(),
            changed.pop("flags", self.flags) | more,
            changed.pop("counter", self.counter or 0),
            credential,
        )
        return data

    def _client_data(self, kind: str, challenge: str, changed: dict[str, Any]) -> bytes:
        return CollectedClientData.create(
            changed.pop("type", kind),
            challenge,
            changed.pop("origin", self.origin),
            cross_origin=changed.pop("cross_origin", False),
        )

    def _answer(self, response: dict[str, Any], credential_id: bytes | None = None) -> str:
        name = base64url(credential_id or self.credential_id)
        return json.dumps(
            {
                "id": name,
                "rawId": name,
                "type": "public-key",
                "authenticatorAttachment": "platform",
                "clientExtensionResults": {"credProps": {"rk": True}},
                "response": response,
            }
        )
