"""Looking rows up by their keys, as every request does to know who asks: past SQLAlchemy.

A connection is handed from one read to the next without transactions and greenlets; a statement is planned once a
connection, because to plan a small one takes PostgreSQL longer than to carry it out.
"""

from typing import Final

import asyncpg
from sqlalchemy.engine import make_url

from identity_common.api_errors import store_unavailable
from identity_common.database import CONNECT_TIMEOUT_S
from identity_common.logs import get_logger

_log = get_logger(__name__)

_CONNECTIONS: Final = 4
"""Besides those of SQLAlchemy's pool; a look-up is over in less than a millisecond, the next one waits for it."""
AT_ONCE: Final = 2
"""So many statements of a kind under way are enough: what is asked meanwhile goes together in the next."""
_TIMEOUT_S: Final = 2.0
# A plan that is kept must hold however the tables grow: it asks an index, even where a table is small by then.
_SETTINGS: Final = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class Lookups:
    """A pool of connections for such reads.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        service: Shown by the database beside its sessions.
        connections: So many at most, made when they are needed.
    """

    def __init__(self, database_url: str, *, service: str, connections: int = _CONNECTIONS) -> None:
        url = make_url(database_url).set(drivername="postgresql")
        self._database_url = url.render_as_string(hide_password=False)
        self._settings = {"application_name": service, **_SETTINGS}
        self._connections = connections
        self._pool: asyncpg.Pool | None = None

    async def start(self) -> None:
        """Prepare the pool; the database need not answer yet."""
        self._pool = await asyncpg.create_pool(
            self._database_url,
            min_size=0,
            max_size=self._connections,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=_TIMEOUT_S,
            server_settings=self._settings,
            reset=_keep,
        )

    def stop(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self._pool.terminate()

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Return the rows of a statement that looks them up by their keys.

        Args:
            statement: SQL with ``$1``, ``$2``.
            values: For these.

        Raises:
            ApiError: 503 when the database does not answer.
        """
        if self._pool is None:
            raise store_unavailable()
        try:
            async with self._pool.acquire(timeout=_TIMEOUT_S) as connection:
                try:
                    rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
                except asyncpg.InternalClientError:  # the database is just ending this connection
                    connection.terminate()
                    raise
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
            TimeoutError,
        ) as error:
            _log.warning("store.unavailable", store="postgresql", error=type(error).__name__)
            raise store_unavailable() from None
        return rows


async def _keep(_: asyncpg.Connection) -> None:
    """Leave a connection as it is between two reads, which change nothing about it."""
