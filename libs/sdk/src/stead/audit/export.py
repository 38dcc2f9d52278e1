"""Verifies an export of the trail against signed heads, and finds the first entry that was tampered with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from stead.audit.heads import Head, InvalidHead, decoded
from stead.audit.leaves import PERSONAL_MEMBERS, SALT_BYTES, leaf_of, personal_hash
from stead.audit.tree import HASH_BYTES, Frontier, is_consistent

Kind = Literal[
    "malformed", "changed", "removed", "repeated", "reordered", "appended", "rewritten", "inconsistent", "erased"
]

_DELETION: Final = "management.user.delete"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A problem, and the first entry that it concerns.

    Attributes:
        kind: ``rewritten``: the entries from the index on are not those of the head, and without authentic leaf hashes
            it is not known which. ``inconsistent``: the heads, or head and leaf hashes, contradict each other.
            ``erased``: the personal part is gone, and the export has no deletion of a user that the entry is about.
        message: The same in words.
        leaf_index: Place of the entry in the tree; None if it has none.
        entry_id: Id of the entry, as exported; None if it is missing or unknown.
    """

    kind: Kind
    message: str
    leaf_index: int | None = None
    entry_id: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a verification.

    Attributes:
        finding: The first problem; None if everything was verified.
        warning: A possible problem: the first erased entry for which the export lacks a deletion of its user, which may
            precede the export.
        verified: Number of exported entries that are as they were stored.
        erased: Number of those that no longer have a personal part.
        newer: Number of exported entries that are later than the head, and therefore not verified.
    """

    finding: Finding | None
    warning: Finding | None = None
    verified: int = 0
    erased: int = 0
    newer: int = 0


class _Found(Exception):  # noqa: N818 - carries an answer
    def __init__(self, kind: Kind, message: str, *, index: int | None = None, entry_id: object = None) -> None:
        super().__init__(message)
        name = entry_id if isinstance(entry_id, str) else None
        self.finding = Finding(kind=kind, message=message, leaf_index=index, entry_id=name)


class _Line(msgspec.Struct, frozen=True):
    index: int
    entry_id: str
    hash: bytes
    is_erased: bool
    people: frozenset[str] = frozenset()  # ids of the users that an erased entry is about


def verify_export(
    lines: Iterable[str | bytes],
    head: Head,
    *,
    leaves: Iterable[str] | None = None,
    earlier: Head | None = None,
    consistency: Sequence[bytes] | None = None,
    begin: int = 0,
) -> Report:
    """Verify an export against a head; find the first entry that was changed, removed, reordered, appended or erased.

    Args:
        lines: Lines of ``GET /api/logs/export``.
        head: A verified head, signed before the export began; later entries are only counted. With a later head, the
            entries that it covers and the export lacks are reported as removed.
        leaves: Lines of ``GET /api/logs/leaves``. Needed if the export does not begin with the first entry of the
            tree; and to tell which entry was changed, not just that one was.
        earlier: An earlier verified head; the entries that it covers must be unchanged.
        consistency: The path of ``GET /api/logs/consistency`` between both heads; not needed with ``leaves``, or if the
            export has all entries.
        begin: Entries with a smaller leaf index may be missing, because their retention has passed.
    """
    newer = 0
    found: dict[int, _Line] = {}
    deleted: set[str] = set()
    try:
        authentic = _authentic_leaves(leaves, head)
        for number, text in enumerate(lines, 1):
            if not text.strip():
                continue
            line, deleted_user = _read(text, number)
            if deleted_user is not None:
                deleted.add(deleted_user)
            if line.index >= head.tree_size:
                newer += 1
            else:
                _place(line, found)
        hashes = _compare(found, authentic, begin) if authentic is not None else _whole(found, head)
        _check_earlier(hashes, head, earlier, consistency)
        if authentic is None:
            _check_root(hashes, head, earlier)
        warning = _check_erasures(found, deleted, begin)
    except _Found as wrong:
        return Report(finding=wrong.finding, newer=newer)
    erased = sum(line.is_erased for line in found.values())
    return Report(finding=None, warning=warning, verified=len(found), erased=erased, newer=newer)


def _read(text: str | bytes, number: int) -> tuple[_Line, str | None]:
    """Return a line, and the user whose deletion it records. The hash is empty if erased members have reappeared."""
    try:
        entry = json.loads(text, object_pairs_hook=_without_repeats)
        leaf, entry_id = entry.pop("leaf", None), entry.get("id")
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise _Found("malformed", f"line {number} is not an entry") from None
    if leaf is None:
        raise _Found("appended", f"line {number}: the entry is not in the tree", entry_id=entry_id)
    index = leaf.get("index") if isinstance(leaf, dict) else None
    if type(index) is not int or index < 0:
        raise _Found("malformed", f"line {number}: leaf.index is missing", entry_id=entry_id)
    try:
        salt, personal = leaf.get("salt"), leaf.get("personalHash")
        is_erased = salt is None
        hashed = decoded(personal) if is_erased else personal_hash(entry, _salt(salt))
        is_restored = is_erased and any(name in entry for name in PERSONAL_MEMBERS)
        people = (entry.get(name) for name in ("userId", "actorId", "requestedBy")) if is_erased else ()
        line = _Line(
            index=index,
            entry_id=str(entry_id),
            hash=b"" if is_restored else leaf_of(entry, hashed),
            is_erased=is_erased,
            people=frozenset(each for each in people if isinstance(each, str)),
        )
        return line, _deleted_user(entry)
    except (InvalidHead, TypeError, ValueError, OverflowError):
        message = f"line {number}: the salt or the hash of the personal part is missing or malformed"
        raise _Found("malformed", message, index=index, entry_id=entry_id) from None


def _deleted_user(entry: dict[str, Any]) -> str | None:
    ids = entry.get("ids")
    if (entry.get("log"), entry.get("key")) != ("management", _DELETION) or not isinstance(ids, dict):
        return None
    user_id = ids.get("user_id")
    return user_id if isinstance(user_id, str) else None


def _place(line: _Line, found: dict[int, _Line]) -> None:
    if line.index in found:
        message = f"two entries have leaf index {line.index}"
        raise _Found("repeated", message, index=line.index, entry_id=line.entry_id)
    found[line.index] = line


def _salt(text: str) -> bytes:
    salt = decoded(text)
    if len(salt) != SALT_BYTES:
        raise ValueError("not a salt")
    return salt


def _without_repeats(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a member is repeated")
    return found


def _authentic_leaves(lines: Iterable[str] | None, head: Head) -> list[bytes] | None:
    """Return the leaf hashes of the head's tree, authenticated by its root; None without any."""
    if lines is None:
        return None
    leaves: list[bytes] = []
    frontier = Frontier()
    for text in lines:
        if len(leaves) == head.tree_size:
            break
        try:
            leaf = decoded(text.strip())
        except InvalidHead:
            leaf = b""
        if len(leaf) != HASH_BYTES:
            raise _Found("malformed", f"the leaf hash of index {len(leaves)} is malformed", index=len(leaves))
        leaves.append(leaf)
        frontier.append(leaf)
    if len(leaves) < head.tree_size or frontier.root != head.root:
        raise _Found("inconsistent", "the leaf hashes are not those of the head: verify without them")
    return leaves


def _compare(found: dict[int, _Line], leaves: list[bytes], begin: int) -> list[bytes]:
    places: dict[bytes, int] | None = None
    for index, leaf in enumerate(leaves):
        line = found.get(index)
        if line is None:
            if index >= begin:
                raise _missing(index, found)
        elif line.hash != leaf:
            places = {each: place for place, each in enumerate(leaves)} if places is None else places
            place = places.get(line.hash)
            if place is not None:
                message = f"the entry at leaf index {index} belongs at {place}"
                raise _Found("reordered", message, index=index, entry_id=line.entry_id)
            message = f"the entry at leaf index {index} is not the one that was stored"
            raise _Found("changed", message, index=index, entry_id=line.entry_id)
    return leaves


def _whole(found: dict[int, _Line], head: Head) -> list[bytes]:
    for index in range(head.tree_size):
        if index not in found:
            raise _missing(index, found, "; if its retention has passed, give the leaf hashes")
    return [found[index].hash for index in range(head.tree_size)]


def _missing(index: int, found: dict[int, _Line], more: str = "") -> _Found:
    if all(each < index for each in found):
        more = ", with all after it: verify with a head that was signed before the export began"
    return _Found("removed", f"the entry at leaf index {index} is missing{more}", index=index)


def _check_erasures(found: dict[int, _Line], deleted: set[str], begin: int) -> Finding | None:
    """Return a warning about the first erased entry whose user's deletion is missing: it may precede the export."""
    unexplained = (index for index, line in found.items() if line.is_erased and line.people.isdisjoint(deleted))
    index = min(unexplained, default=None)
    if index is None:
        return None
    message = f"the entry at leaf index {index} has lost its personal part, and no deletion of its user is exported"
    erased = _Found("erased", message, index=index, entry_id=found[index].entry_id)
    if begin <= 0:
        raise erased
    return erased.finding


def _check_earlier(hashes: list[bytes], head: Head, earlier: Head | None, consistency: Sequence[bytes] | None) -> None:
    if earlier is None:
        return
    if (earlier.iss, earlier.tenant_id, earlier.log_id) != (head.iss, head.tenant_id, head.log_id):
        raise _Found("inconsistent", "the heads are of different logs")
    if earlier.tree_size > head.tree_size:
        raise _Found("inconsistent", f"the later head has {head.tree_size} entries, the earlier {earlier.tree_size}")
    if consistency is not None and not is_consistent(
        earlier.tree_size, earlier.root, head.tree_size, head.root, consistency
    ):
        raise _Found("inconsistent", "the later head does not continue the earlier one: entries of it were rewritten")
    if _root(hashes[: earlier.tree_size]) != earlier.root:
        raise _Found("rewritten", f"the first {earlier.tree_size} entries are not those of the earlier head", index=0)


def _check_root(hashes: list[bytes], head: Head, earlier: Head | None) -> None:
    if _root(hashes) != head.root:
        index = earlier.tree_size if earlier else 0
        message = f"the entries from leaf index {index} on are not those of the head; the leaf hashes would tell which"
        raise _Found("rewritten", message, index=index)


def _root(leaves: Sequence[bytes]) -> bytes:
    frontier: Final = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root
