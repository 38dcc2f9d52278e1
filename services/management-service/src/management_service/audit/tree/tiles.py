"""The Merkle tree in tiles: 256 hashes of one level in one row. Pure.

Level 0 has the leaf hashes; each further level has the roots of the complete subtrees of 256 hashes below. A head or a
proof over ten million leaves reads three tiles for each hash at most, and appending writes the last tile of each level.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stead.audit.tree import EMPTY_ROOT, HASH_BYTES, complete_subtrees, joined, root_of

_WIDTH_BITS: Final = 8
TILE_HASHES: Final = 1 << _WIDTH_BITS

Range = tuple[int, int]
"""A half-open range of leaf indexes."""


class TileId(NamedTuple):
    """A tile: its level, and its place on that level."""

    level: int
    number: int


class MissingTileError(Exception):
    """A tile of the tree is missing or too short: it was tampered with."""


class Tiles:
    """Some tiles of a tree, as they are stored."""

    def __init__(self, tiles: Mapping[TileId, bytes]) -> None:
        self._tiles = tiles

    def hash_of(self, leaves: Range) -> bytes:
        """Return the hash of a range of leaves that a proof or a head needs.

        Raises:
            MissingTileError: A tile is missing or too short.
        """
        subtrees = complete_subtrees(*leaves)
        return joined([self._complete(*subtree) for subtree in subtrees]) if subtrees else EMPTY_ROOT

    def _complete(self, level: int, number: int) -> bytes:
        tile, begin, count = _place(level, number)
        hashes = self._tiles.get(tile, b"")[begin * HASH_BYTES : (begin + count) * HASH_BYTES]
        if len(hashes) != count * HASH_BYTES:
            raise MissingTileError(f"tile {tile.number} of level {tile.level} is missing or too short")
        return root_of(split(hashes))


def tiles_of(ranges: Iterable[Range]) -> set[TileId]:
    """Return the tiles that ``Tiles.hash_of`` reads for these ranges."""
    return {_place(*subtree)[0] for leaves in ranges for subtree in complete_subtrees(*leaves)}


def last_tiles(size: int) -> list[TileId]:
    """Return the incomplete tiles at the right edge of a tree of this size, which ``appended`` continues."""
    tiles, level = [], 0
    while size:
        if size % TILE_HASHES:
            tiles.append(TileId(level, size >> _WIDTH_BITS))
        size >>= _WIDTH_BITS
        level += 1
    return tiles


def appended(edge: Mapping[TileId, bytes], size: int, leaves: Sequence[bytes]) -> dict[TileId, bytes]:
    """Return the tiles that change when leaf hashes are appended to a tree of this size.

    Args:
        edge: The tiles of ``last_tiles``.
        size: Number of leaves before.
        leaves: The leaf hashes.

    Raises:
        MissingTileError: A tile of the edge is missing or of another length.
    """
    changed: dict[TileId, bytes] = {}
    level, added = 0, b"".join(leaves)
    while added:
        number, filled = size >> _WIDTH_BITS, size % TILE_HASHES
        before = edge.get(TileId(level, number), b"") if filled else b""
        if len(before) != filled * HASH_BYTES:
            raise MissingTileError(f"tile {number} of level {level} is missing or of another length")
        hashes = before + added
        complete = []
        for at in range(0, len(hashes), TILE_HASHES * HASH_BYTES):
            tile = changed[TileId(level, number)] = hashes[at : at + TILE_HASHES * HASH_BYTES]
            if len(tile) == TILE_HASHES * HASH_BYTES:
                complete.append(root_of(split(tile)))
            number += 1
        level, size, added = level + 1, size >> _WIDTH_BITS, b"".join(complete)
    return changed


def split(hashes: bytes) -> list[bytes]:
    """Split a tile into its hashes."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def _place(level: int, number: int) -> tuple[TileId, int, int]:
    """Return where a complete subtree is: the tile, the first of its hashes there, and their count."""
    above, below = divmod(level, _WIDTH_BITS)
    first = number << below
    return TileId(above, first >> _WIDTH_BITS), first % TILE_HASHES, 1 << below
