"""Identifiers and secrets: how they are made. On input every identifier is opaque."""

import secrets
import string
from typing import Final

_LOWER: Final = string.digits + string.ascii_lowercase
_MIXED: Final = _LOWER + string.ascii_uppercase


class _RandomText:
    """Makes random text out of an alphabet, each character equally likely, with one call for random bytes."""

    def __init__(self, alphabet: str, length: int) -> None:
        accepted = 256 - 256 % len(alphabet)  # bytes from here on would favour some characters: they are left out
        self._rejected = bytes(range(accepted, 256))
        self._translation = bytes(ord(alphabet[byte % len(alphabet)]) for byte in range(accepted)).ljust(256)
        self._length = length
        self._draw = 2 * length

    def __call__(self) -> str:
        text = b""
        while len(text) < self._length:
            text += secrets.token_bytes(self._draw).translate(self._translation, self._rejected)
        return text[: self._length].decode()


_id: Final = _RandomText(_LOWER, 21)
_short_id: Final = _RandomText(_LOWER, 12)
_secret: Final = _RandomText(_MIXED, 43)


def new_id() -> str:
    """Return a new id: 21 characters of ``[0-9a-z]``, about 108 random bits. Never reused (lesson L5)."""
    return _id()


def new_short_id() -> str:
    """Return a new id of a user or an organization: 12 characters of ``[0-9a-z]``, about 62 random bits."""
    return _short_id()


def new_secret() -> str:
    """Return a new secret: 43 characters of ``[0-9A-Za-z]``, at least 256 random bits."""
    return _secret()


def new_token_id() -> str:
    """Return a new ``jti``: 32 hexadecimal characters, 128 random bits."""
    return secrets.token_hex(16)
