"""Sealing of data at rest and on the bus: AES-256-GCM under a ring of keys."""

import base64
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12


class NoFittingKeyError(Exception):
    """No key of the ring decrypts a sealed value."""


class SealingKeys:
    """Seals with the newest key, opens with any.

    A value can be opened only under the name that it was sealed for, which is the associated data: a row that was moved
    to another place is refused.

    Args:
        keys: Base64 of 32 bytes each, newest first.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers = [AESGCM(base64.b64decode(key)) for key in keys]

    def seal(self, plaintext: bytes, *, name: str) -> bytes:
        """Return nonce and ciphertext."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, plaintext, name.encode())

    def open(self, sealed: bytes, *, name: str) -> bytes:
        """Return the plaintext.

        Raises:
            NoFittingKeyError: No key fits, the value was altered, or it was sealed for another name.
        """
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, name.encode())
            except (InvalidTag, ValueError):  # ValueError: shorter than a nonce
                continue
        raise NoFittingKeyError(f"no key decrypts {name}")

    def is_newest(self, sealed: bytes, *, name: str) -> bool:
        """Return whether this was sealed with the newest key."""
        try:
            self._ciphers[0].decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):  # as in ``open``
            return False
        return True


def is_sealing_key(text: str) -> bool:
    """Return whether a text is base64 of 32 bytes."""
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except ValueError:
        return False
