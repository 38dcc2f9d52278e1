"""The Merkle tree of RFC 9162 section 2.1 with SHA-256: hashes, ranges, and the verification of proofs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf (RFC 9162 section 2.1.1)."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (RFC 9162 section 2.1.1)."""
    return sha256(b"\1" + left + right).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root of the tree over these leaf hashes (RFC 9162 section 2.1.1).

    Pairs are hashed level by level; a last one without a sibling moves up, which gives the same root as the recursive
    definition.
    """
    if not leaves:
        return EMPTY_ROOT
    level = list(leaves)
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        level = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)] + odd
    return level[0]


def complete_subtrees(begin: int, end: int) -> list[tuple[int, int]]:
    """Return the complete subtrees that make up the leaves from ``begin`` to ``end``, from left to right.

    Each is a level (it has 2 ** level leaves) and its number on that level. ``begin`` must be a multiple of the largest
    power of two that is smaller than the number of leaves, as it is for every range of a proof.
    """
    subtrees = []
    while begin < end:
        level = (end - begin).bit_length() - 1
        subtrees.append((level, begin >> level))
        begin += 1 << level
    return subtrees


def joined(subtrees: Sequence[bytes]) -> bytes:
    """Return the hash of a range from those of its complete subtrees, from left to right."""
    *rest, right = subtrees
    for left in reversed(rest):
        right = node_hash(left, right)
    return right


def inclusion_ranges(index: int, size: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose hashes prove that a leaf is in a tree (RFC 9162 section 2.1.3.1)."""
    ranges, begin, end = [], 0, size
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((begin, middle))
            begin = middle
    return ranges[::-1]


def consistency_ranges(first: int, second: int) -> list[tuple[int, int]]:
    """Return the ranges of leaves whose hashes prove that a tree continues another (RFC 9162 section 2.1.4.1)."""
    if first == second:
        return []
    ranges, begin, end, is_known = [], 0, second, True
    while end != first:
        middle = begin + _split(end - begin)
        if first <= middle:
            ranges.append((middle, end))
            end = middle
        else:
            ranges.append((begin, middle))
            begin, is_known = middle, False
    if not is_known:
        ranges.append((begin, end))
    return ranges[::-1]


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether a path proves that this leaf hash is at this index of the tree (RFC 9162 section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    node, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if node % 2 or node == last:
            found = node_hash(sibling, found)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and found == root


def is_consistent(first: int, first_root: bytes, second: int, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether a path proves that the second tree begins with all of the first (RFC 9162 section 2.1.4.2)."""
    if first == second:
        return not path and first_root == second_root
    if not 0 < first < second or not path:
        return False
    nodes = [first_root, *path] if first & (first - 1) == 0 else list(path)
    node, last = first - 1, second - 1
    while node % 2:
        node, last = node >> 1, last >> 1
    old = new = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if node % 2 or node == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while node % 2 == 0 and node:
                node, last = node >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


class Frontier:
    """Computes the root of a tree in logarithmic memory, from its complete subtrees (RFC 9162 section 2.1.2)."""

    def __init__(self) -> None:
        self.size = 0
        self._subtrees: list[bytes] = []

    def append(self, leaf: bytes) -> None:
        """Add a leaf hash."""
        size = self.size
        while size % 2:
            leaf = node_hash(self._subtrees.pop(), leaf)
            size >>= 1
        self._subtrees.append(leaf)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The root of the leaves so far."""
        return joined(self._subtrees) if self._subtrees else EMPTY_ROOT


def _split(count: int) -> int:
    """Return the largest power of two that is smaller than a number of leaves."""
    return 1 << (count - 1).bit_length() - 1
