"""Looking rows up by their keys, as every request does to know who asks: past SQLAlchemy.

A connection is handed from one read to the next without transactions and greenlets; a statement is planned once in
seconds, because to plan a small one takes PostgreSQL longer than to carry it out.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import asyncpg
from sqlalchemy.engine import make_url

from identity_common.http.api_errors import store_unavailable
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_CONNECTIONS: Final = 4
"""Besides those of SQLAlchemy's pool; a look-up is over in less than a millisecond, the next one waits for it."""
AT_ONCE: Final = 2
"""So many statements of a kind under way are enough: what is asked meanwhile goes together in the next."""
_TIMEOUT_S: Final = 2.0
_PLANNED_ANEW_S: Final = 10.0
"""A plan that was made when a table was empty may ask any index of it, and would go on to when it is large."""
# A plan that is kept must hold however the tables grow: it asks an index, even where a table is small by then. That it
# asks by the whole key, and not for the whole table, a statement of several rows must see to itself (OFFSET 0).
_SETTINGS: Final = {"jit": "off", "plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}


class Lookups:
    """Connections for such reads, made when they are needed and kept.

    asyncpg's own pool costs as much as a read: two tasks and a timer around each one, and a reset behind it that
    nothing here has need of.

    Args:
        database_url: ``postgresql+asyncpg://…``.
        service: Shown by the database beside its sessions.
        connections: So many at most.
        planned_anew_s: So old a plan may get, in seconds.
    """

    def __init__(
        self,
        database_url: str,
        *,
        service: str,
        connections: int = _CONNECTIONS,
        planned_anew_s: float = _PLANNED_ANEW_S,
    ) -> None:
        url = make_url(database_url).set(drivername="postgresql")
        self._database_url = url.render_as_string(hide_password=False)
        self._settings = {"application_name": service, **_SETTINGS}
        self._planned_anew_s = planned_anew_s
        self._places = asyncio.Semaphore(connections)
        self._open: set[asyncpg.Connection] = set()
        self._idle: list[asyncpg.Connection] = []

    def stop(self) -> None:
        """Close the connections."""
        self._idle.clear()
        while self._open:
            self._open.pop().terminate()

    async def fetch(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Return the rows of a statement that looks them up by their keys.

        Args:
            statement: SQL with ``$1``, ``$2``.
            values: For these.

        Raises:
            ApiError: 503 when the database does not answer.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._places:
                return await self._fetch(statement, values)
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # the database was just ending this connection
            OSError,
            TimeoutError,
        ) as error:
            _log.warning("store.unavailable", store="postgresql", error=type(error).__name__)
            raise store_unavailable() from None

    async def _fetch(self, statement: str, values: Sequence[object]) -> list[asyncpg.Record]:
        """Read on a connection that nobody else uses meanwhile; one on which a read has failed is not used again."""
        connection = await self._take()
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *values)
        except BaseException:
            self._open.discard(connection)
            connection.terminate()
            raise
        self._idle.append(connection)
        return rows

    async def _take(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._open.discard(connection)
        connection = await asyncpg.connect(
            self._database_url,
            server_settings=self._settings,
            max_cached_statement_lifetime=self._planned_anew_s,
        )
        self._open.add(connection)
        return connection
