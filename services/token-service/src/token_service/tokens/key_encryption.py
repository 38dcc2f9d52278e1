"""Encryption of private keys at rest: AES-256-GCM with a key-encryption key that only this service has."""

import base64
import os
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12


class KeyEncryptionError(Exception):
    """No configured key-encryption key decrypts a stored private key."""


class KeyEncryption:
    """Encrypts with the newest key, decrypts with any; the ``kid`` is associated data."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers = [AESGCM(base64.b64decode(key)) for key in keys]

    def encrypt(self, private_key: bytes, *, kid: str) -> bytes:
        """Return nonce and ciphertext."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, private_key, kid.encode())

    def decrypt(self, encrypted: bytes, *, kid: str) -> bytes:
        """Return the private key.

        Raises:
            KeyEncryptionError: No configured key fits, or the row belongs to another ``kid``.
        """
        nonce, ciphertext = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, ciphertext, kid.encode())
            except (InvalidTag, ValueError):  # ValueError: the row is shorter than a nonce
                continue
        raise KeyEncryptionError(f"no key-encryption key opens signing key {kid}")

    def is_newest(self, encrypted: bytes, *, kid: str) -> bool:
        """Return whether this was encrypted with the newest key."""
        try:
            self._ciphers[0].decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], kid.encode())
        except InvalidTag:
            return False
        return True
