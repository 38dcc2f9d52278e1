"""The ``Prefer`` header (RFC 7240)."""

import re
from collections.abc import Sequence
from typing import Final

_MAX_CHARACTERS: Final = 1024
_PREFERENCE: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_NAME: Final = re.compile(r"[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)")
_SECONDS: Final = re.compile(r'[ \t]*=[ \t]*(?:([0-9]{1,9})|"([0-9]{1,9})")[ \t]*(?:;.*)?')


def preferred_wait(values: Sequence[str]) -> int | None:
    """Return how many seconds a client is willing to wait for its answer; None without the preference.

    The first of several ``wait`` applies. A malformed preference and a header of over 1,024 characters are ignored.

    Args:
        values: The lines of the header.

    Source:
        RFC 7240 sections 2 (syntax, repetition) and 4.3 (``wait``).
    """
    line = ",".join(values)
    if not 0 < len(line) <= _MAX_CHARACTERS:
        return None
    for preference in _PREFERENCE.findall(line):
        name = _NAME.match(preference)
        if name is not None and name[1].lower() == "wait":
            seconds = _SECONDS.fullmatch(preference, name.end())
            return int(seconds[1] or seconds[2]) if seconds is not None else None
    return None
