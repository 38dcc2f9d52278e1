"""Reads in autocommit mode, which saves BEGIN and ROLLBACK."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.stores.database import create_database_engine
from identity_common.write_condition import is_read_for_condition

CONDITION_CONNECTIONS: Final = 2


def autocommit(engine: AsyncEngine) -> AsyncEngine:
    """Return the same pool in autocommit mode."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


class Reader(AsyncEngine):
    """A pool in autocommit mode, with a few more connections for the reads that judge conditions.

    Such a read is awaited by a transaction, which holds a connection of the pool: many of them at once would hold all
    connections while each waits for another one.

    Args:
        engine: The pool; ``dispose`` closes it too.
        database_url: ``postgresql+asyncpg://…``, of the same database.
        service: Name of the sessions in ``pg_stat_activity``.
    """

    def __init__(self, engine: AsyncEngine, database_url: str, *, service: str) -> None:
        super().__init__(autocommit(engine).sync_engine)
        conditions = create_database_engine(database_url, service=service, pool_size=CONDITION_CONNECTIONS)
        self._for_conditions = autocommit(conditions)

    def connect(self) -> AsyncConnection:
        """Return a connection, to be opened as a context."""
        return self._for_conditions.connect() if is_read_for_condition() else super().connect()

    async def dispose(self, close: bool = True) -> None:
        """Close all connections."""
        await self._for_conditions.dispose(close)
        await super().dispose(close)
