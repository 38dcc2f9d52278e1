"""RFC 9162 section 2.1: roots, inclusion and consistency of the Merkle tree of the audit trail."""

from hashlib import sha256

from management_service.audit.tree.tiles import TileId, Tiles, appended, last_tiles, tiles_of
from stead.audit.tree import (
    EMPTY_ROOT,
    Frontier,
    consistency_ranges,
    inclusion_ranges,
    is_consistent,
    is_included,
    leaf_hash,
    root_of,
)

ENTRIES = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
LEAVES = [leaf_hash(bytes.fromhex(each)) for each in ENTRIES]
# the vectors of the reference implementation of RFC 6962, whose hashing RFC 9162 kept
ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def test_the_roots_are_those_of_the_known_vectors() -> None:
    frontier = Frontier()
    for size, root in enumerate(ROOTS):
        assert (root_of(LEAVES[:size]).hex(), frontier.root.hex(), frontier.size) == (root, root, size)
        if size < len(LEAVES):
            frontier.append(LEAVES[size])
    assert Tiles({}).hash_of((0, 0)) == EMPTY_ROOT


def test_inclusion_of_every_leaf_and_of_no_other() -> None:
    for size in range(1, 20):
        leaves = [sha256(bytes([each])).digest() for each in range(size)]
        root = root_of(leaves)
        for index, leaf in enumerate(leaves):
            path = [root_of(leaves[begin:end]) for begin, end in inclusion_ranges(index, size)]
            assert is_included(leaf, index, size, path, root)
            assert not is_included(root, index, size, path, root) or size == 1
            assert not is_included(leaf, index, size, [*path, root], root)
            assert not is_included(leaf, index + 1, size, path, root)
            assert not is_included(leaf, index, size, path[:-1], root) or size == 1


def test_consistency_of_every_two_sizes_and_of_no_other_tree() -> None:
    leaves = [sha256(bytes([each])).digest() for each in range(20)]
    for second in range(1, 20):
        for first in range(1, second + 1):
            path = [root_of(leaves[begin:end]) for begin, end in consistency_ranges(first, second)]
            old, new = root_of(leaves[:first]), root_of(leaves[:second])
            assert is_consistent(first, old, second, new, path)
            assert not is_consistent(first, new, second, old, path) or first == second
            assert not is_consistent(first, old, second, new, [*path, old])
            assert not is_consistent(first, EMPTY_ROOT, second, new, path)
    assert not is_consistent(0, EMPTY_ROOT, 1, leaves[0], [])


def test_tiles_give_the_same_roots_and_proofs_in_a_few_reads() -> None:
    leaves = [sha256(each.to_bytes(4)).digest() for each in range(70_000)]
    stored: dict[TileId, bytes] = {}
    size = 0
    for count in (1, 254, 1, 1, 255, 500, 65_000, 3_988):
        edge = {tile: stored[tile] for tile in last_tiles(size)}
        stored |= appended(edge, size, leaves[size : size + count])
        size += count
    assert size == len(leaves)
    for at in (1, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, size):
        assert Tiles(stored).hash_of((0, at)) == root_of(leaves[:at])
    for ranges in (inclusion_ranges(12_345, size), consistency_ranges(300, size), [(0, size)]):
        needed = tiles_of(ranges)
        assert len(needed) <= 6
        some = Tiles({tile: stored[tile] for tile in needed})
        assert [some.hash_of(each) for each in ranges] == [root_of(leaves[begin:end]) for begin, end in ranges]
