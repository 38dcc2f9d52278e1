"""The monthly partitions of the trail: created ahead, dropped after the retention."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import asyncpg

from management_service.audit.schema import AUDIT_STATISTICS

_TABLES: Final = ("audit_targets", "audit_parties", "audit_entries")
"""In order of creation: triggers on the last insert into the others. A month has all three partitions or none."""
_PREFIX: Final = "audit_parties_"
_MONTHS_AHEAD: Final = 2
_STATEMENT_S: Final = 30.0
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('identity-audit-partitions'))"
# Creating and dropping a partition locks the whole table: readers must not queue behind a long wait for that lock.
_BRIEFLY: Final = "SET LOCAL lock_timeout = '2s'"
_EXISTING: Final = """
    SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'audit_parties'::regclass
"""


class Month(NamedTuple):
    """A calendar month, UTC."""

    year: int
    month: int

    @classmethod
    def of(cls, time_ms: int) -> "Month":
        """Return the month of a time in milliseconds since the epoch."""
        time = datetime.fromtimestamp(time_ms / 1000, UTC)
        return cls(time.year, time.month)

    @property
    def next(self) -> "Month":
        """The month after it."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def begins_at(self) -> int:
        """Milliseconds since the epoch."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp()) * 1000

    def partition(self, table: str) -> str:
        """Return the name of a table's partition for it."""
        return f"{table}_{self.year:04}_{self.month:02}"


def months_ahead(now_ms: int) -> Sequence[Month]:
    """Return the current month and those whose partitions are created ahead."""
    months = [Month.of(now_ms)]
    while len(months) <= _MONTHS_AHEAD:
        months.append(months[-1].next)
    return months


async def create_partitions(connection: asyncpg.Connection, months: Iterable[Month]) -> None:
    """Create the partitions that are missing."""
    missing = set(months) - await _existing(connection)
    if not missing:
        return
    async with connection.transaction():
        await connection.execute(_LOCK)
        await connection.execute(_BRIEFLY)
        for month in sorted(missing):
            for table in _TABLES:
                await connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {month.partition(table)} PARTITION OF {table}"
                    f" FOR VALUES FROM ({month.begins_at}) TO ({month.next.begins_at})",
                    timeout=_STATEMENT_S,
                )
            entries = month.partition("audit_entries")
            for name, expression in AUDIT_STATISTICS.items():
                await connection.execute(
                    f"CREATE STATISTICS IF NOT EXISTS {entries}_{name} ON ({expression}) FROM {entries}",
                    timeout=_STATEMENT_S,
                )


async def drop_partitions(connection: asyncpg.Connection, *, before_ms: int) -> list[Month]:
    """Drop the partitions that end before a time; return their months."""
    expired = [month for month in await _existing(connection) if month.next.begins_at <= before_ms]
    for month in sorted(expired):
        async with connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute(_BRIEFLY)
            for table in _TABLES:
                await connection.execute(f"DROP TABLE IF EXISTS {month.partition(table)}", timeout=_STATEMENT_S)
    return sorted(expired)


async def _existing(connection: asyncpg.Connection) -> set[Month]:
    names = [row["relname"].removeprefix(_PREFIX) for row in await connection.fetch(_EXISTING)]
    return {Month(*map(int, name.split("_"))) for name in names}
