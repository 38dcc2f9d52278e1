"""Heads of the audit trail's tree, and proofs against them."""

from collections.abc import AsyncGenerator

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.failures import Conflict, Issue, NotYetThere, TemporarilyUnavailable, invalid_input, missing_by_id
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from management_service.audit.tree.keys import jwk_set, sealed_keys
from management_service.audit.tree.store import find_head, find_leaf, find_tiles
from management_service.audit.tree.tiles import TILE_HASHES, MissingTileError, Range, TileId, Tiles, tiles_of
from stead.audit.heads import encoded
from stead.audit.tree import consistency_ranges, inclusion_ranges

_log = get_logger(__name__)


class SignedHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last signed head of the tree.

    Attributes:
        head: A JWS with ``typ`` ``audit-head+jwt``; its claims are ``iss``, ``tenantId``, ``logId``, ``treeSize``,
            ``rootHash`` and ``time``.
        tree_size: How many entries it covers.
    """

    head: str
    tree_size: int


class InclusionProof(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Proves that an entry is in the tree (RFC 9162 section 2.1.3).

    Attributes:
        leaf_index: Index of the entry, from 0.
        leaf_hash: Hash of its leaf, base64url.
        tree_size: Size of the head's tree.
        audit_path: Hashes from the leaf to the root, base64url.
        head: The signed head.
    """

    leaf_index: int
    leaf_hash: str
    tree_size: int
    audit_path: list[str]
    head: str


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "second": "to"}):
    """Proves that a tree extends an earlier one (RFC 9162 section 2.1.4).

    Attributes:
        first: Size of the earlier tree.
        second: Size of the later tree.
        path: Hashes, base64url.
        head: The last signed head, which may be later.
    """

    first: int
    second: int
    path: list[str]
    head: str


class AuditProofs:
    """Reads the tree of a tenant.

    Args:
        reader: The database.
        sealing: Opens the keys that sign heads.
        tenant_id: The tenant.
    """

    def __init__(self, reader: AsyncEngine, sealing: SealingKeys, *, tenant_id: str) -> None:
        self._reader = reader
        self._keys = sealed_keys(sealing, tenant_id)
        self._tenant_id = tenant_id

    async def jwks(self) -> bytes:
        """Return the public keys of heads as a JWK Set.

        Raises:
            TemporarilyUnavailable: No key in the settings opens one of them.
        """
        async with self._reader.connect() as connection:
            rows = await self._keys.rows(connection)
        try:
            return jwk_set(self._keys, rows)
        except NoFittingKeyError:
            _log.error("audit.head-key-sealed")
            raise TemporarilyUnavailable from None

    async def head(self) -> SignedHead:
        """Return the last signed head.

        Raises:
            NotYetThere: No head is signed yet.
        """
        async with self._reader.connect() as connection:
            return await self._head(connection)

    async def inclusion(self, entry_id: str) -> InclusionProof:
        """Prove that an entry is in the tree of the last signed head.

        Raises:
            NotYetThere: The entry is later than the head, or no head is signed yet.
            Conflict: ``log.tree_inconsistent``: the tree was tampered with.
        """
        async with self._reader.connect() as connection:
            index = await find_leaf(connection, self._tenant_id, entry_id)
            head = await self._head(connection)
            if index is None:
                raise missing_by_id()
            if index >= head.tree_size:
                raise NotYetThere("log.not_in_tree", "No signed head covers the entry yet. Try again in a second.")
            ranges = inclusion_ranges(index, head.tree_size)
            tiles = await find_tiles(connection, self._tenant_id, {*tiles_of(ranges), *tiles_of([(index, index + 1)])})
        return InclusionProof(
            leaf_index=index,
            leaf_hash=_hashes(tiles, [(index, index + 1)])[0],
            tree_size=head.tree_size,
            audit_path=_hashes(tiles, ranges),
            head=head.head,
        )

    async def consistency(self, first: int, second: int | None) -> ConsistencyProof:
        """Prove that the tree of one size begins with that of another.

        Args:
            first: Size of the earlier tree, at least 1.
            second: Size of the later one; that of the last signed head if it is None.

        Raises:
            Invalid: The sizes are not ascending, or beyond the last signed head.
            NotYetThere: No head is signed yet.
            Conflict: ``log.tree_inconsistent``: the tree was tampered with.
        """
        async with self._reader.connect() as connection:
            head = await self._head(connection)
            until = head.tree_size if second is None else second
            if until > head.tree_size:
                raise invalid_input(Issue(path="to", message="must be at most the size of the last signed head"))
            if first > until:
                raise invalid_input(Issue(path="from", message="must be at most the later size"))
            ranges = consistency_ranges(first, until)
            tiles = await find_tiles(connection, self._tenant_id, tiles_of(ranges))
        return ConsistencyProof(first=first, second=until, path=_hashes(tiles, ranges), head=head.head)

    async def leaves(self) -> AsyncGenerator[bytes, None]:
        """Yield lines of all leaf hashes that the last signed head covers, base64url, tile by tile."""
        size = (await self.head()).tree_size
        for begin in range(0, size, TILE_HASHES):
            async with self._reader.connect() as connection:
                tiles = await find_tiles(connection, self._tenant_id, [TileId(0, begin // TILE_HASHES)])
            shown = [(each, each + 1) for each in range(begin, min(begin + TILE_HASHES, size))]
            yield "".join(f"{leaf}\n" for leaf in _hashes(tiles, shown)).encode()

    async def _head(self, connection: AsyncConnection) -> SignedHead:
        found = await find_head(connection, self._tenant_id)
        if found is None:
            raise NotYetThere("log.no_head", "No head is signed yet. Try again in a second.")
        return SignedHead(tree_size=found[0], head=found[1])


def _hashes(tiles: Tiles, ranges: list[Range]) -> list[str]:
    try:
        return [encoded(tiles.hash_of(each)) for each in ranges]
    except MissingTileError:
        raise Conflict("log.tree_inconsistent", "Hashes of the tree are missing.") from None
