"""The device cookie: the users that have signed in at a browser before, so that attempts are counted per browser.

Wrong passwords from elsewhere then do not lock the account's owner out. The cookie does not authenticate. It is bound
to the accounts and to their tokensValidAfter: a new password makes the browser unknown to the account.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from identity_common.identifiers import new_id
from identity_common.signed_values import SignedValues
from identity_common.wire.known_devices import KnownDevice

DEVICE_TTL_S: Final = 365 * 86_400
_MAX_USERS: Final = 5
_MAX_CHARACTERS: Final = 2048
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[KnownDevice, ...]).decode


class Devices:
    """Signs and verifies device cookies.

    Args:
        keys: The key-encryption keys, newest first: a key derived from the first signs, those of all verify.
        tenant_id: The tenant; cookies of other tenants are not accepted.
    """

    def __init__(self, keys: Sequence[str], *, tenant_id: str) -> None:
        self._signed = SignedValues(keys, purpose=f"device cookie of {tenant_id}")

    def read(self, cookie: str | None) -> tuple[KnownDevice, ...]:
        """Return the users that a browser is known to; empty if the cookie is not genuine."""
        if cookie is None or len(cookie) > _MAX_CHARACTERS:
            return ()
        payload = self._signed.verified(cookie)
        if payload is None:
            return ()
        try:
            return _decode(base64.urlsafe_b64decode(payload + "=="))
        except (binascii.Error, msgspec.DecodeError):  # signed by another version
            return ()

    def write(self, known: Sequence[KnownDevice], user_id: str, *, tokens_valid_after: int) -> str:
        """Return the cookie of a browser at which a user has just signed in; it keeps the last few users."""
        present = next((each.id for each in known if each.user_id == user_id), None)
        device = KnownDevice(present or new_id(), user_id, tokens_valid_after)
        others = [each for each in known if each.user_id != user_id]
        payload = base64.urlsafe_b64encode(_encode([device, *others][:_MAX_USERS])).decode().rstrip("=")
        return self._signed.sign(payload)
