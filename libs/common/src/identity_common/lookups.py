"""Looking rows up by their keys, for requests that do nothing else in the database: past SQLAlchemy.

A connection is handed from one read to the next without its pool, its transactions and its greenlets; a statement is
planned once a connection, because to plan a small one takes PostgreSQL longer than to carry it out.
"""

from typing import Final

import asyncpg
from sqlalchemy.engine import make_url

from identity_common.api_errors import store_unavailable
from identity_common.database import CONNECT_TIMEOUT_S
from identity_common.logs import get_logger

_log = get_logger(__name__)

_TIMEOUT_S: Final = 2.0
# A plan that is kept must hold however the tables grow: it asks an index, even where a table is small by then.
_SETTINGS: Final = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class Lookups:
    """Connections of their own; as many as there are reads at once, which is for the caller to bound.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        service: Shown by the database beside its sessions.
    """

    def __init__(self, database_url: str, *, service: str) -> None:
        url = make_url(database_url).set(drivername="postgresql")
        self._database_url = url.render_as_string(hide_password=False)
        self._settings = {"application_name": service, **_SETTINGS}
        self._idle: list[asyncpg.Connection] = []

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Return the rows of a statement that looks them up by their keys.

        Args:
            statement: SQL with ``$1``, ``$2``.
            values: For these.

        Raises:
            ApiError: 503 when the database does not answer.
        """
        try:
            return await self._fetch(statement, *values)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            _log.warning("store.unavailable", store="postgresql", error=type(error).__name__)
            raise store_unavailable() from None

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop().terminate()

    async def _fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        connection = self._take() or await self._connect()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values, timeout=_TIMEOUT_S)
        except BaseException:
            connection.terminate()  # an answer may still be to come
            raise
        self._idle.append(connection)
        return rows

    def _take(self) -> asyncpg.Connection | None:
        """Return the connection that was used last and is still open, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def _connect(self) -> asyncpg.Connection:
        return await asyncpg.connect(
            self._database_url, timeout=CONNECT_TIMEOUT_S, command_timeout=_TIMEOUT_S, server_settings=self._settings
        )
