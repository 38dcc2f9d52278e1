"""Leaves of entries, as ``stead.audit.leaves`` defines them, with new salts.

Most entries are decoded into a struct that has their members in the order of the canonical JSON: building, examining
and sorting a dictionary for each cost more than all else about it.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from identity_common.wire.audit import AuditEntry
from identity_common.wire.audit_entries import MAX_INDEXED, Members
from stead.audit.leaves import PERSONAL_MEMBERS, SALT_BYTES, canonical
from stead.audit.tree import leaf_hash

_Text = Annotated[str, msgspec.Meta(max_length=MAX_INDEXED)]
_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_NESTED: Final[dict[str, Any]] = {
    "context": dict[_Text, _Text | None],
    "ids": dict[_Text, _Text],
    "given": dict[_Text, list[_Text]],
    **dict.fromkeys(("members", "aggregates", "altered"), list[_Text]),
}
_MEMBERS: Final = sorted(
    (field.encode_name, _NESTED.get(field.encode_name, _Number | _Text | None), msgspec.UNSET)
    for field in msgspec.structs.fields(AuditEntry)
    if field.name != "gap"  # only management-service itself has gaps to record
)
_decode: Final = msgspec.json.Decoder(msgspec.defstruct("_Ordered", _MEMBERS, forbid_unknown_fields=True)).decode
_Personal: Final = msgspec.defstruct("_Personal", [each for each in _MEMBERS if each[0] in PERSONAL_MEMBERS])
_encode: Final = msgspec.json.Encoder(order="deterministic").encode  # the members of structs stay in their order


class Parts(NamedTuple):
    """The canonical JSON of the parts of an entry that a leaf has.

    Attributes:
        personal: Its personal part.
        clear: The rest.
    """

    personal: bytes
    clear: bytes


class Leaf(NamedTuple):
    """The leaf of an entry."""

    salt: bytes
    hash: bytes


def parts_of(members: Members) -> Parts:
    """Return the parts of an entry, whatever members it has."""
    personal = {name: value for name, value in members.items() if name in PERSONAL_MEMBERS}
    clear = {name: value for name, value in members.items() if name not in PERSONAL_MEMBERS}
    return Parts(canonical(personal), canonical(clear))


def plain_parts(text: bytes) -> Parts | None:
    """Return the parts of an entry that can be stored as it is; None if that takes a closer look at its members.

    Args:
        text: JSON in UTF-8 that is an ``AuditEntry``.
    """
    if b"\\" in text:  # an escape may stand for a NUL or a lone surrogate
        return None
    try:
        entry = _decode(text)
    except msgspec.ValidationError:  # it has a member that only a later release knows, or much text
        return None
    personal = _Personal()
    for name in PERSONAL_MEMBERS:
        setattr(personal, name, getattr(entry, name))
        setattr(entry, name, msgspec.UNSET)
    return Parts(_encode(personal), _encode(entry))


def leaves_of(entries: Sequence[Parts]) -> list[Leaf]:
    """Return the leaves of entries, with new salts."""
    salts = os.urandom(SALT_BYTES * len(entries))
    return [
        _leaf(parts, salts[at : at + SALT_BYTES])
        for parts, at in zip(entries, range(0, len(salts), SALT_BYTES), strict=True)
    ]


def _leaf(parts: Parts, salt: bytes) -> Leaf:
    return Leaf(salt, leaf_hash(sha256(salt + parts.personal).digest() + parts.clear))
