"""Key lookups that every request needs, such as who its caller is: they bypass SQLAlchemy.

There are no transactions and greenlets, a connection passes from one lookup to the next, and a statement is planned
once in ten seconds: PostgreSQL takes longer to plan a small statement than to run it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NewType

import asyncpg
from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from identity_common.failures import StoreUnavailable
from identity_common.stores.database_servers import database_servers

KeyLookup = NewType("KeyLookup", str)
"""A statement that reads each row by the whole of a key, and may therefore be planned once for all values.

It runs with a generic plan (``plan_cache_mode``), which is kept however much the tables grow meanwhile: the plan must
use an index even if a table is small when it is made (``enable_seqscan``). A statement of several tables must look up
each of them in a subquery that the planner cannot flatten (``OFFSET 0``), or it may read a whole index to join them.
"""


def key_lookup(statement: Select[Any]) -> KeyLookup:
    """Return a statement as a key lookup; its values are given in the order in which it names its parameters."""
    return KeyLookup(str(statement.compile(dialect=asyncpg_dialect())))  # type: ignore[no-untyped-call]


MAX_CONCURRENT: Final = 2
"""Concurrent statements of one kind, if lookups are coalesced; further lookups wait for the next statement."""
_SETTINGS: Final = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
_CONNECTIONS: Final = 4
_TIMEOUT_S: Final = 3.0
_PLAN_LIFETIME_S: Final = 10.0
"""A plan made while a table was empty may use any of its indexes, and would keep it when the table is large."""


class Lookups:
    """A small pool of connections for key lookups; they are opened on demand and kept.

    asyncpg's own pool costs as much as a lookup: two tasks and a timer for each, and a reset that a lookup does not
    need.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        service: Name of the sessions in ``pg_stat_activity``.
        connections: Maximum number of connections.
        plan_lifetime_s: Seconds after which a statement is planned again.
    """

    def __init__(
        self,
        database_url: str,
        *,
        service: str,
        connections: int = _CONNECTIONS,
        plan_lifetime_s: float = _PLAN_LIFETIME_S,
    ) -> None:
        self._servers = database_servers(database_url)
        self._settings = {"application_name": service, **_SETTINGS}
        self._plan_lifetime_s = plan_lifetime_s
        self._slots = asyncio.Semaphore(connections)
        self._open: set[asyncpg.Connection] = set()
        self._idle: list[asyncpg.Connection] = []

    def stop(self) -> None:
        """Close the connections."""
        self._idle.clear()
        while self._open:
            self._open.pop().terminate()

    async def fetch(self, lookup: KeyLookup, *values: object) -> list[asyncpg.Record]:
        """Return the rows that a statement finds.

        Args:
            lookup: SQL with parameters ``$1``, ``$2``.
            values: Values of the parameters.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._slots:
                return await self._fetch(lookup, values)
        except TimeoutError as error:  # the server may be silent: each other connection would be waited for as well
            while self._idle:
                self._discard(self._idle.pop())
            raise StoreUnavailable("postgresql", type(error).__name__) from None
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # the server was closing this connection
            OSError,
        ) as error:
            raise StoreUnavailable("postgresql", type(error).__name__) from None

    async def _fetch(self, lookup: str, values: Sequence[object]) -> list[asyncpg.Record]:
        """Fetch on a separate connection, and discard the connection if that fails."""
        connection = await self._acquire()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(lookup, *values)
        except BaseException:
            self._discard(connection)
            raise
        self._idle.append(connection)
        return rows

    def _discard(self, connection: asyncpg.Connection) -> None:
        self._open.discard(connection)
        connection.terminate()

    async def _acquire(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open.discard(connection)
        connection = await self._servers.connect(
            server_settings=self._settings, max_cached_statement_lifetime=self._plan_lifetime_s
        )
        self._open.add(connection)
        return connection
