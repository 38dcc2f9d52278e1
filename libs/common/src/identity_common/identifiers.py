"""Identifiers and secrets: how they are made. On input every identifier is opaque."""

import os
import secrets
import string
from typing import Final

_HEXADECIMAL: Final = string.digits + "abcdef"
_LOWER: Final = string.digits + string.ascii_lowercase
_MIXED: Final = _LOWER + string.ascii_uppercase

_IDS_AT_ONCE: Final = 64


class _RandomText:
    """Makes random text out of an alphabet, each character equally likely.

    Args:
        alphabet: What the text is made of.
        length: Of the text, in characters.
        at_once: How many texts one call for random bytes is for. Identifiers are made in stock, since that call would
            be a good part of what a token costs; secrets never are.
    """

    def __init__(self, alphabet: str, length: int, *, at_once: int = 1) -> None:
        accepted = 256 - 256 % len(alphabet)  # bytes from here on would favour some characters: they are left out
        self._rejected = bytes(range(accepted, 256))
        self._translation = bytes(ord(alphabet[byte % len(alphabet)]) for byte in range(accepted)).ljust(256)
        self._length = length
        self._at_once = at_once
        self._stock: list[str] = []
        os.register_at_fork(after_in_child=self._stock.clear)  # two processes would make the same ids

    def __call__(self) -> str:
        while True:
            try:
                return self._stock.pop()
            except IndexError:
                self._stock += self._made()

    def _made(self) -> list[str]:
        length = self._length
        drawn = secrets.token_bytes(length * (self._at_once + 1)).translate(self._translation, self._rejected).decode()
        return [drawn[start : start + length] for start in range(0, len(drawn) - length + 1, length)][: self._at_once]


_id: Final = _RandomText(_LOWER, 21, at_once=_IDS_AT_ONCE)
_short_id: Final = _RandomText(_LOWER, 12, at_once=_IDS_AT_ONCE)
_token_id: Final = _RandomText(_HEXADECIMAL, 32, at_once=_IDS_AT_ONCE)
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
    return _token_id()
