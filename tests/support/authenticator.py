"""An authenticator with a passkey, as browsers answer for it: encoded by fido2, which shares no code with ours."""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
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
    """

    def __init__(
        self,
        *,
        rp_id: str = RP_ID,
        origin: str = ORIGIN,
        counter: int | None = None,
        flags: AuthenticatorData.FLAG = SYNCED,
        aaguid: bytes = bytes(16),
    ) -> None:
        self.key = generate_private_key(SECP256R1())
        self.credential_id = secrets.token_bytes(32)
        self.user_handle: bytes | None = None
        self.rp_id, self.origin, self.counter, self.flags, self.aaguid = rp_id, origin, counter, flags, aaguid

    def create(self, challenge: str, *, user_handle: bytes, **changed: Any) -> str:
        """Return the JSON of a new credential."""
        self.user_handle = user_handle
        credential = AttestedCredentialData.create(
            self.aaguid,
            self.credential_id,
            ES256.from_cryptography_key(self.key.public_key()),  # type: ignore[no-untyped-call]
        )
        data = self._data(_ATTESTED, credential, changed)
        attestation = AttestationObject.create(changed.pop("fmt", "none"), data, changed.pop("statement", {}))
        return self._answer(
            {
                "clientDataJSON": base64url(self._client_data("webauthn.create", challenge, changed)),
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
                "signature": base64url(changed.pop("signature", None) or self.key.sign(signed, ECDSA(SHA256()))),
                "userHandle": None if handle is None else base64url(handle),
            },
            credential_id,
        )

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
