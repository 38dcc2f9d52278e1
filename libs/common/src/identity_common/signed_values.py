"""Short texts that a browser keeps for us, signed: the browser cannot alter or invent one."""

import base64
import hmac
from collections.abc import Sequence

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class SignedValues:
    """Signs texts and verifies them.

    Args:
        keys: A ring of base64 of 32 bytes each, newest first: a key derived from the first signs, those of all verify.
        purpose: What is signed, and for which tenant; texts that were signed for another purpose are not genuine.
    """

    def __init__(self, keys: Sequence[str], *, purpose: str) -> None:
        self._keys = [
            HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose.encode()).derive(base64.b64decode(key))
            for key in keys
        ]

    def sign(self, text: str) -> str:
        """Return a text with its signature after a dot."""
        return _signed(text, self._keys[0])

    def verified(self, signed: str) -> str | None:
        """Return the text that was signed; None if it is not genuine."""
        text, _, _ = signed.rpartition(".")
        if not any(hmac.compare_digest(_signed(text, key).encode(), signed.encode()) for key in self._keys):
            return None
        return text


def _signed(text: str, key: bytes) -> str:
    signature = hmac.digest(key, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
