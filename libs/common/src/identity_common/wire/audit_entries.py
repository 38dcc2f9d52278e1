"""Entries of the audit trail as JSON. What a caller chose never keeps an entry out of the trail.

A member that cannot be stored as it is gets replaced or left out, and ``altered`` names it. The service that publishes
the entry does this, and so does the ingestion, so that no entry can block those behind it.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from identity_common.wire.audit import AuditEntry

MAX_ENTRY_BYTES: Final = 15 << 10
"""With its numbers an entry is under 16 KiB, and fifty fit into a message of the bus."""
MAX_TEXT: Final = 2048
MAX_INDEXED: Final = 256
"""Characters of an indexed member: an index row of PostgreSQL takes a third of a page at most."""

_INDEXED: Final = frozenset(
    {
        *("id", "epoch", "key", "operation", "applicationId", "userId", "actorId", "requestedBy", "organizationId"),
        *("subjectTokenId", "ids", "given"),
    }
)
_REQUIRED: Final = frozenset(field.encode_name for field in msgspec.structs.fields(AuditEntry) if field.required)
_ALTERED: Final = "altered"
_NUL: Final = b"\\u0000"
_REPLACED: Final = dict.fromkeys([0, *range(0xD800, 0xE000)], "\N{REPLACEMENT CHARACTER}")
"""NUL and lone surrogates: PostgreSQL cannot store them."""
_INT64: Final = range(-(2**63), 2**63)

Members = dict[str, Any]
"""An entry as decoded JSON."""

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def entry_json(entry: AuditEntry) -> bytes:
    """Return the JSON of an entry, of at most ``MAX_ENTRY_BYTES``."""
    try:
        encoded = _encode(entry)
    except UnicodeEncodeError:  # a lone surrogate
        return _encode(_shortened(storable(msgspec.to_builtins(entry))))
    if len(encoded) <= MAX_ENTRY_BYTES and _NUL not in encoded:  # it may be an escaped backslash
        return encoded
    return _encode(_shortened(storable(_decode(encoded))))


def storable(members: Members) -> Members:
    """Return an entry whose text and numbers can be stored: the same object if nothing has to change.

    A NUL or lone surrogate becomes U+FFFD. Text beyond 2,048 characters, or 256 where the member is indexed, is
    truncated. A number beyond 64 bits, or that is not finite, becomes null.
    """
    changed: Members = {}
    for name, value in members.items():
        cleaned = _cleaned(value, MAX_INDEXED if name in _INDEXED else MAX_TEXT)
        if cleaned is not value and cleaned != value:
            changed[name] = cleaned
    return marked({**members, **changed}, changed) if changed else members


def marked(members: Members, changed: Iterable[str]) -> Members:
    """Return an entry that names the changed members in ``altered``."""
    before = members.get(_ALTERED)
    named = [each for each in before if isinstance(each, str)] if isinstance(before, list | tuple) else []
    return {**members, _ALTERED: sorted({*named, *changed})}


def _shortened(members: Members) -> Members:
    """Leave out the largest members of an entry that is too large."""
    while len(_encode(members)) > MAX_ENTRY_BYTES:
        optional = {name: len(_encode(members[name])) for name in members if name not in _REQUIRED}
        largest = max(optional, key=optional.__getitem__)
        members = marked({name: value for name, value in members.items() if name != largest}, [largest])
    return members


def _cleaned(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= most and value.isascii() and "\0" not in value else _text(value, most)
    if isinstance(value, list | tuple):
        return type(value)(_cleaned(each, most) for each in value)
    if isinstance(value, dict):
        return {_cleaned(name, most): _cleaned(each, most) for name, each in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or value in _INT64 else None


def _text(value: str, most: int) -> str:
    return value.translate(_REPLACED)[:most]
