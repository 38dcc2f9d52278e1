"""Appends entries to the tree of a tenant, in the transaction that stores them; only on the ingesting replica."""

from collections.abc import Sequence
from typing import Final

import asyncpg
import msgspec

from identity_common.identifiers import new_id
from management_service.audit.tree.leaves import leaves_of, parts_of
from management_service.audit.tree.tiles import TileId, Tiles, appended, last_tiles

_BEGIN: Final = (
    "INSERT INTO audit_trees (tenant_id, log_id, size) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING RETURNING 1"
)
_SIZE: Final = "SELECT size FROM audit_trees WHERE tenant_id = $1"
_GROW: Final = "UPDATE audit_trees SET size = $2 WHERE tenant_id = $1"
_TILES: Final = """
    SELECT level, number, hashes FROM audit_tiles
    WHERE tenant_id = $1 AND (level, number) IN (SELECT * FROM unnest($2::integer[], $3::bigint[]))
"""
_PUT_TILES: Final = """
    INSERT INTO audit_tiles (tenant_id, level, number, hashes)
    SELECT $1, level, number, hashes FROM unnest($2::integer[], $3::bigint[], $4::bytea[]) AS t (level, number, hashes)
    ON CONFLICT (tenant_id, level, number) DO UPDATE SET hashes = excluded.hashes
"""
_EARLIER: Final = "SELECT occurred_at, number, entry FROM audit_entries WHERE tenant_id = $1 ORDER BY number"
_ADOPT: Final = """
    UPDATE audit_entries SET leaf_index = $4, salt = $5 WHERE tenant_id = $1 AND occurred_at = $2 AND number = $3
"""
_AT_ONCE: Final = 500


class Growth:
    """The right edge of a tree, from one batch to the next.

    Get it from ``opened``; after a failure, open it again.

    Attributes:
        size: Number of leaves.
    """

    def __init__(self, tenant_id: str, size: int, edge: dict[TileId, bytes]) -> None:
        self.size = size
        self._tenant_id = tenant_id
        self._edge = edge

    @classmethod
    async def opened(cls, connection: asyncpg.Connection, tenant_id: str) -> "Growth":
        """Read the edge; if there is no tree, begin one with the entries that were stored before there were trees."""
        async with connection.transaction():
            is_new = await connection.fetchval(_BEGIN, tenant_id, new_id())
            size = await connection.fetchval(_SIZE, tenant_id)
            growth = cls(tenant_id, size, await stored_tiles(connection, tenant_id, last_tiles(size)))
            if is_new:
                await growth._adopt(connection)
        return growth

    @property
    def root(self) -> bytes:
        """The root of the tree.

        Raises:
            MissingTileError: The edge was tampered with.
        """
        return Tiles(self._edge).hash_of((0, self.size))

    async def append(self, connection: asyncpg.Connection, hashes: Sequence[bytes]) -> None:
        """Append leaf hashes, within a transaction.

        Raises:
            MissingTileError: The edge was tampered with.
        """
        changed = appended(self._edge, self.size, hashes)
        if not changed:
            return
        levels, numbers = zip(*changed, strict=True)
        self.size += len(hashes)
        await connection.execute(_PUT_TILES, self._tenant_id, levels, numbers, [*changed.values()])
        await connection.execute(_GROW, self._tenant_id, self.size)
        tiles = self._edge | changed
        self._edge = {tile: tiles[tile] for tile in last_tiles(self.size)}

    async def _adopt(self, connection: asyncpg.Connection) -> None:
        rows = []
        async for row in connection.cursor(_EARLIER, self._tenant_id, prefetch=_AT_ONCE):
            rows.append(row)
            if len(rows) == _AT_ONCE:
                await self._adopt_some(connection, rows)
                rows = []
        await self._adopt_some(connection, rows)

    async def _adopt_some(self, connection: asyncpg.Connection, rows: Sequence[asyncpg.Record]) -> None:
        leaves = leaves_of([parts_of(msgspec.json.decode(row["entry"])) for row in rows])
        places = [
            (self._tenant_id, row["occurred_at"], row["number"], index, leaf.salt)
            for index, (row, leaf) in enumerate(zip(rows, leaves, strict=True), self.size)
        ]
        await connection.executemany(_ADOPT, places)
        await self.append(connection, [leaf.hash for leaf in leaves])


async def stored_tiles(connection: asyncpg.Connection, tenant_id: str, tiles: Sequence[TileId]) -> dict[TileId, bytes]:
    """Return the tiles that exist."""
    rows = await connection.fetch(_TILES, tenant_id, [tile.level for tile in tiles], [tile.number for tile in tiles])
    return {TileId(row["level"], row["number"]): row["hashes"] for row in rows}
