"""Leaves of the tree: an entry in clear, except for its personal part, of which a leaf has a salted hash.

The personal part and its salt can be erased; the hash of the personal part takes their place, and the leaf stays as it
was.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import msgspec

from stead.audit.tree import leaf_hash

PERSONAL_MEMBERS: Final = ("address", "context", "userAgent")
"""Members erased with a user; the rest are ids, times and names of members."""
SALT_BYTES: Final = 16

_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(value: dict[str, Any]) -> bytes:
    """Return JSON in UTF-8 with the members of objects sorted by code point, no white space, and integers in full.

    Only quotation marks, backslashes and control characters are escaped.
    """
    return _encode(value)


def personal_hash(entry: dict[str, Any], salt: bytes) -> bytes:
    """Return the hash of the personal part: SHA-256 of the salt and the canonical members."""
    return sha256(salt + canonical({name: entry[name] for name in PERSONAL_MEMBERS if name in entry})).digest()


def leaf_of(entry: dict[str, Any], personal: bytes) -> bytes:
    """Return the leaf hash of an entry.

    Args:
        entry: The entry, with or without its personal part.
        personal: The hash of its personal part.
    """
    return leaf_hash(personal + canonical({name: entry[name] for name in entry if name not in PERSONAL_MEMBERS}))
