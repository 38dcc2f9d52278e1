"""Reads the entries in a message of the stream; of one that is not as it should be, what can be saved. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from identity_common.wire.audit import AuditEntry
from identity_common.wire.audit_entries import Members, marked, storable
from management_service.audit.tree.leaves import Parts, parts_of, plain_parts

_MAX_DIGITS: Final = 20
_TYPES: Final[dict[str, Any]] = {field.encode_name: field.type for field in msgspec.structs.fields(AuditEntry)}

_decode = msgspec.json.Decoder(AuditEntry).decode
_decode_several = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class ReadEntry(NamedTuple):
    """An entry of a message, as it can be stored.

    Attributes:
        entry: The entry.
        text: Its JSON.
        parts: What its leaf has of it.
    """

    entry: AuditEntry
    text: str
    parts: Parts


def read_entries(message: bytes) -> Iterator[ReadEntry | None]:
    """Yield the entries of a message, which has one or an array of them; None for each that lacks what it must have.

    Text that cannot be stored is replaced, and members that are not valid are left out: ``altered`` names both.
    """
    try:
        texts = _decode_several(message) if message.startswith(b"[") else [message]
    except (msgspec.DecodeError, RecursionError):  # one entry suffices for that
        values = _read_leniently(message)
        yield from map(_saved, values if isinstance(values, list) else [values])
    else:
        yield from map(_read, map(bytes, texts))


def _read(text: bytes) -> ReadEntry | None:
    try:
        decoded, entry = text.decode(), _decode(text)
        parts = plain_parts(text)
        if parts is not None:
            return ReadEntry(entry, decoded, parts)
        members = msgspec.json.decode(text)
        is_storable = storable(members) is members
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _saved(_read_leniently(text))
    return ReadEntry(entry, decoded, parts_of(members)) if is_storable else _saved(members)


def _saved(members: Any) -> ReadEntry | None:
    if not isinstance(members, dict):
        return None
    try:
        members = _valid(storable(members))
        return ReadEntry(msgspec.convert(members, AuditEntry), _encode(members).decode(), parts_of(members))
    except (msgspec.ValidationError, RecursionError):
        return None


def _valid(members: Members) -> Members:
    """Return an entry without the members that are not of the right kind."""
    invalid = [name for name, value in members.items() if not _is_valid(name, value)]
    if not invalid:
        return members
    return marked({name: value for name, value in members.items() if name not in invalid}, invalid)


def _is_valid(name: str, value: Any) -> bool:
    try:
        msgspec.convert(value, _TYPES.get(name, Any))
    except msgspec.ValidationError:
        return False
    return True


def _read_leniently(text: bytes) -> Any:
    """Return the value of a JSON text; accepts bytes that are not UTF-8, lone surrogates and numbers of any size."""
    try:
        return json.loads(text.decode(errors="surrogateescape"), strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return None


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MAX_DIGITS else float("inf")
