"""How many entries of each key each hour has: counted as they are stored, so that figures need no scan of the trail."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import asyncpg

HOUR_MS: Final = 3_600_000

_COUNT: Final = """
    INSERT INTO audit_figures (tenant_id, hour, key, entries)
    SELECT $1, hour, key, entries FROM unnest($2::bigint[], $3::text[], $4::bigint[]) AS counted (hour, key, entries)
    ON CONFLICT (tenant_id, hour, key) DO UPDATE SET entries = audit_figures.entries + excluded.entries
"""
_DROP: Final = "DELETE FROM audit_figures WHERE tenant_id = $1 AND hour < $2"


def hour_of(time_ms: int) -> int:
    """Return when the hour of a time begins (UTC), in milliseconds since the epoch."""
    return time_ms - time_ms % HOUR_MS


async def count_entries(connection: asyncpg.Connection, tenant_id: str, stored: Iterable[tuple[int, str]]) -> None:
    """Count entries that are stored in the same transaction.

    Args:
        connection: The connection of that transaction.
        tenant_id: The tenant.
        stored: The time, in milliseconds since the epoch, and the key of each.
    """
    counts = Counter((hour_of(time_ms), key) for time_ms, key in stored)
    if counts:
        hours, keys = zip(*counts, strict=True)
        await connection.execute(_COUNT, tenant_id, hours, keys, [*counts.values()])


async def drop_figures(connection: asyncpg.Connection, tenant_id: str, *, before_ms: int) -> None:
    """Drop the figures of the hours that begin before a time."""
    await connection.execute(_DROP, tenant_id, before_ms)
