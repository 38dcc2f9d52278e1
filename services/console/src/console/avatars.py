"""Avatars: the initials of a name, and which colour they have. Pure."""

import unicodedata
import zlib
from typing import Final

HUES: Final = 6
"""How many colours the stylesheet has."""

_LENGTH: Final = 200
_UNKNOWN: Final = "?"


def initials(name: str) -> str:
    """Return two letters of a name: the first ones of its first and its last word, or of its only word.

    Marks, emoji and characters that turn text around are left out. Without any letter or digit it is ``?``.
    """
    plain = unicodedata.normalize("NFKC", name[:_LENGTH])
    words = ["".join(each for each in word if each.isalnum()) for word in plain.split()]
    first, *others = [word for word in words if word] or [_UNKNOWN]
    letters = first[0] + others[-1][0] if others else first[:2]
    return "".join(each.upper()[0] for each in letters)


def hue(name: str) -> int:
    """Return the number of a colour, below ``HUES``; the same for the same name."""
    return zlib.crc32(name.encode()) % HUES
