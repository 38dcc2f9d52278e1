"""Identifiers and secrets: their formats and their generation. On input every identifier is opaque."""

import secrets
import string
from typing import Final

_LOWER: Final = string.digits + string.ascii_lowercase
_MIXED: Final = _LOWER + string.ascii_uppercase


class RandomText:
    """Draws random text from an alphabet, each character equally likely.

    Args:
        alphabet: The characters to draw from.
        length: Characters in the text.
    """

    def __init__(self, alphabet: str, length: int) -> None:
        accepted = 256 - 256 % len(alphabet)  # larger bytes would make some characters more likely
        self._rejected = bytes(range(accepted, 256))
        self._translation = bytes(ord(alphabet[byte % len(alphabet)]) for byte in range(accepted)).ljust(256)
        self._length = length

    def __call__(self) -> str:
        """Return a new text."""
        text = b""
        while len(text) < self._length:
            text += secrets.token_bytes(2 * self._length).translate(self._translation, self._rejected)
        return text[: self._length].decode()


new_id: Final = RandomText(_LOWER, 21)
"""Returns a new id: 21 characters of ``[0-9a-z]``, about 108 random bits. Ids are never reused."""

new_short_id: Final = RandomText(_LOWER, 12)
"""Returns a new id of a user or an organization: 12 characters of ``[0-9a-z]``, about 62 random bits."""

new_secret: Final = RandomText(_MIXED, 43)
"""Returns a new secret: 43 characters of ``[0-9A-Za-z]``, 256 random bits."""


def new_token_id() -> str:
    """Return a new ``jti``: 32 hexadecimal characters, 128 random bits."""
    return secrets.token_hex(16)
