"""Which scope of the Management API a page of the console needs, by its address. Pure."""

import re
from typing import Final

_AREAS: Final = "template|organizations|users|roles|applications|resources|claims"
_NEEDED: Final = tuple(
    (re.compile(f"/console/{address}(?:/.*)?"), reading, changing)
    for address, reading, changing in (
        ("(?:users|applications)/[^/]+/roles", "roles:read", "roles"),
        ("impersonations/policy", "config:read", "config"),
        ("impersonations/new", "config:read", "subject-tokens"),
        ("impersonations", "impersonations:read", "impersonations:end"),
        ("audit", "audit:read", "audit:export"),
        (f"({_AREAS})", r"\1:read", r"\1"),
    )
)
"""Addresses, and the scopes for seeing and for changing what is there; the first that matches counts."""


def needed_scope(path: str, *, changes: bool) -> str | None:
    """Return the scope that a page needs, or a change of what it shows; None for pages of no area."""
    for address, reading, changing in _NEEDED:
        if match := address.fullmatch(path):
            return match.expand(changing if changes else reading)
    return None
