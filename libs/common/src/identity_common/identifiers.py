"""Identifiers and secrets: their formats and their generation. On input every identifier is opaque."""

import os
import secrets
import string
from typing import Final

_AHEAD: Final = 64
_HEXADECIMAL: Final = string.digits + "abcdef"
_LOWER: Final = string.digits + string.ascii_lowercase
_MIXED: Final = _LOWER + string.ascii_uppercase


class RandomText:
    """Draws random text from an alphabet, each character equally likely.

    Args:
        alphabet: The characters to draw from.
        length: Characters in the text.
        ahead: How many texts to draw at once; those that are not needed yet stay in memory, and a forked process
            forgets them. For what is no secret: a system call takes longer than the rest.
    """

    def __init__(self, alphabet: str, length: int, *, ahead: int = 1) -> None:
        accepted = 256 - 256 % len(alphabet)  # larger bytes would make some characters more likely
        self._rejected = bytes(range(accepted, 256))
        self._translation = bytes(ord(alphabet[byte % len(alphabet)]) for byte in range(accepted)).ljust(256)
        self._length = length
        self._ahead = ahead
        self._drawn: list[str] = []
        if ahead > 1:
            os.register_at_fork(after_in_child=self._drawn.clear)

    def __call__(self) -> str:
        """Return a new text."""
        try:
            return self._drawn.pop()
        except IndexError:  # not a test before: another thread may take the last one meanwhile
            return self._draw()

    def _draw(self) -> str:
        """Return a new text, and keep the others that were drawn with it."""
        needed = self._length * self._ahead
        text = b""
        while len(text) < needed:
            text += secrets.token_bytes(2 * needed).translate(self._translation, self._rejected)
        first, *others = (text[at : at + self._length].decode() for at in range(0, needed, self._length))
        self._drawn += others
        return first


new_id: Final = RandomText(_LOWER, 21, ahead=_AHEAD)
"""Returns a new id: 21 characters of ``[0-9a-z]``, about 108 random bits. Ids are never reused."""

new_short_id: Final = RandomText(_LOWER, 12)
"""Returns a new id of a user or an organization: 12 characters of ``[0-9a-z]``, about 62 random bits."""

new_secret: Final = RandomText(_MIXED, 43)
"""Returns a new secret: 43 characters of ``[0-9A-Za-z]``, 256 random bits."""

new_token_id: Final = RandomText(_HEXADECIMAL, 32, ahead=_AHEAD)
"""Returns a new ``jti``: 32 hexadecimal characters, 128 random bits."""
