"""Connections to the server of a database that accepts writes.

Every connection of a service is opened here: those of its pools, workers, lookups and migrations. TLS is configured by
libpq's variables, such as ``PGSSLMODE``, which asyncpg reads by itself.
"""

import functools
from typing import Any, Final
from weakref import WeakSet

import asyncpg

from identity_common.database_address import DatabaseAddress
from identity_common.stores.database_connection import Connection

THIS_SERVER: Final = """(
    CASE WHEN pg_is_in_recovery() THEN '' ELSE
        (SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    END
)"""
"""SQL: the server's cluster and timeline. A promotion, a recovery to a point in time and a dump that is restored into
another cluster each change it; a restart does not."""

_HOST_TIMEOUT_S: Final = 2.0
_IS_STANDBY: Final = "SELECT pg_is_in_recovery()"
_NEXT: Final = (
    OSError,
    TimeoutError,
    asyncpg.CannotConnectNowError,  # it is starting or stopping
    asyncpg.ConnectionDoesNotExistError,  # it went away during the login
    asyncpg.TargetServerAttributeNotMatched,  # it is a standby
)
"""Failures of one server, after which the next one is tried; another one would refuse a wrong password, too."""


class DatabaseServers:
    """The servers of a database.

    The one that was connected last is tried first. Whatever ends an attempt, also its cancellation, the next one begins
    with the server after it: a frozen server delays one connection, and not all. Once a server accepts writes, the
    others do not: every connection to them is terminated, so that no pool or worker waits for a silent one by itself.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self.address = address
        self._preferred = 0
        self._open: list[WeakSet[Connection]] = [WeakSet() for _ in address.hosts]

    async def connect(self, **options: Any) -> Connection:
        """Return a connection to the first server that accepts writes; each may take two seconds.

        Args:
            options: Further arguments of ``asyncpg.connect``; ``command_timeout`` also limits the wait for a COMMIT.

        Raises:
            OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError: No server accepts the connection; of
                several failures, the last one.
        """
        failure: Exception = ConnectionRefusedError()
        first, count = self._preferred, len(self.address.hosts)
        for tried in ((first + number) % count for number in range(count)):  # others move the preferred one meanwhile
            self._preferred = (tried + 1) % count
            try:
                connection = await self._connect(tried, options)
            except _NEXT as error:
                failure = error
            else:
                self._preferred = tried
                self._open[tried].add(connection)
                self._leave_others(tried)
                return connection
        if isinstance(failure, asyncpg.TargetServerAttributeNotMatched):
            raise ConnectionRefusedError("the server does not accept writes")
        raise failure

    def _leave_others(self, number: int) -> None:
        for each, connections in enumerate(self._open):
            if each != number:
                for connection in list(connections):
                    connection.terminate()
                connections.clear()

    async def _connect(self, number: int, options: dict[str, Any]) -> Connection:
        host = self.address.hosts[number]
        connection: Connection = await asyncpg.connect(
            host=host.name,
            port=host.port,
            user=self.address.user,
            password=self.address.password,
            database=self.address.database,
            target_session_attrs="read-write",
            timeout=_HOST_TIMEOUT_S,
            connection_class=Connection,
            **options,
        )
        return connection


async def require_primary(connection: asyncpg.Connection, *, within_s: float) -> None:
    """Ask the server of an idle session whether it still accepts writes.

    Raises:
        asyncpg.InterfaceError: It has become a standby.
        TimeoutError, asyncpg.PostgresError: It does not answer.
    """
    if await connection.fetchval(_IS_STANDBY, timeout=within_s):
        raise asyncpg.InterfaceError("the server has become a standby")


@functools.cache
def database_servers(url: str) -> DatabaseServers:
    """Return the servers of a URL: the same object each time, so that all connections prefer the same server.

    Raises:
        MalformedAddressError: The URL does not have the documented form.
    """
    return DatabaseServers(DatabaseAddress.parse(url))
