"""Reads the tree in PostgreSQL: its leaves, tiles and last signed head."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Select, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.audit.schema import audit_entries, audit_tiles, audit_trees, has_audit_members
from management_service.audit.tree.tiles import TileId, Tiles


async def tree_size(connection: AsyncConnection, tenant_id: str) -> int:
    """Return how many entries are in the tree."""
    statement = select(audit_trees.c.size).where(audit_trees.c.tenant_id == tenant_id)
    return (await connection.execute(statement)).scalar_one_or_none() or 0


async def find_leaf(connection: AsyncConnection, tenant_id: str, entry_id: str) -> int | None:
    """Return the leaf index of an entry; None for an unknown id."""
    statement: Select[Any] = select(audit_entries.c.leaf_index).where(has_audit_members(tenant_id, id=entry_id))
    found: int | None = (await connection.execute(statement.limit(1))).scalar_one_or_none()
    return found


async def find_head(connection: AsyncConnection, tenant_id: str) -> tuple[int, str] | None:
    """Return the size of the last signed head and the head; None before the first."""
    statement = select(audit_trees.c.signed_size, audit_trees.c.head).where(audit_trees.c.tenant_id == tenant_id)
    row = (await connection.execute(statement)).one_or_none()
    return None if row is None or row.head is None else (row.signed_size, row.head)


async def find_tiles(connection: AsyncConnection, tenant_id: str, tiles: Iterable[TileId]) -> Tiles:
    """Return the tiles that are stored."""
    place = tuple_(audit_tiles.c.level, audit_tiles.c.number)
    statement = select(audit_tiles).where(audit_tiles.c.tenant_id == tenant_id, place.in_([*tiles]))
    rows = (await connection.execute(statement)).all()
    return Tiles({TileId(row.level, row.number): row.hashes for row in rows})
