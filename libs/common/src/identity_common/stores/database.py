"""A service's database: how it is connected to, how it starts, and how its refusals become ours.

Owns the engine's settings, the translation of violated constraints, the repetition of transactions that the database
gave up in favour of others, and the wait for a migrated database at start. Does not own any table.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from sqlalchemy import ColumnElement, RowMapping, Select, collate, event, func, or_, pool, select, text
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from identity_common.background import end
from identity_common.http.api_errors import ApiError, store_unavailable
from identity_common.http.pagination import Page
from identity_common.stores.migrations import SELECT_REVISION, head
from identity_common.telemetry.logs import get_logger

P = ParamSpec("P")
R = TypeVar("R")

_log = get_logger(__name__)

CONNECT_TIMEOUT_S: Final = 2.0
_POOL_TIMEOUT_S: Final = 2.0
_STATEMENT_TIMEOUT_S: Final = 30.0
_STARTUP_RETRY_S: Final = 0.25
_ATTEMPTS: Final = 4
_GIVEN_UP: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock


def create_database_engine(url: str, *, service: str, pool_size: int) -> AsyncEngine:
    """Return an engine whose connections are made when they are first needed and replaced when they are broken.

    Args:
        url: ``postgresql+asyncpg://…``.
        service: Shown by the database beside its sessions.
        pool_size: Connections at most; who finds none within two seconds is told to come back later.
    """
    engine = create_async_engine(
        url,
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_POOL_TIMEOUT_S,
        pool_use_lifo=True,
        connect_args={
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": _STATEMENT_TIMEOUT_S,
            "server_settings": {"application_name": service, "jit": "off"},
        },
    )
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    return engine


def _refuse_closed(connection: Any, _: pool.ConnectionPoolEntry, __: pool.PoolProxiedConnection) -> None:
    """Have the pool replace a connection that the driver has seen end; unlike a ping it costs nothing on the wire."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


async def fetch_page(
    connection: AsyncConnection,
    statement: Select[Any],
    values: Mapping[str, object],
    page: Page,
    *,
    searched: Sequence[ColumnElement[Any]] = (),
) -> tuple[list[RowMapping], int]:
    """Return the rows of one page of an ordered list, and how many rows the whole list has: two statements.

    Args:
        connection: What to ask.
        statement: The whole list, in a total order.
        values: For its parameters.
        page: Which part.
        searched: Where the text of the page's search may stand; whoever finds it elsewhere narrows the statement.
    """
    if page.search and searched:
        statement = statement.where(or_(*(_contains(column, page.search) for column in searched)))
    count = select(func.count()).select_from(statement.order_by(None).subquery())
    total = await connection.scalar(count, values)
    rows = (await connection.execute(statement.limit(page.size).offset(page.offset), values)).mappings().all()
    return list(rows), total or 0


def _contains(column: ColumnElement[Any], search: str) -> ColumnElement[bool]:
    # Collated "C", as names are, lower() would know the letters of English only.
    return func.strpos(func.lower(collate(column, "default")), func.lower(search)) > 0


def violated_constraint(error: IntegrityError) -> str | None:
    """Return the name of the constraint that a statement violated."""
    return getattr(error.driver_exception, "constraint_name", None)


@contextlib.contextmanager
def refusals(by_constraint: Mapping[str, Callable[[], ApiError]]) -> Generator[None, None, None]:
    """Turn the violation of a named constraint in the body into the refusal that belongs to it."""
    try:
        yield
    except IntegrityError as error:
        refusal = by_constraint.get(violated_constraint(error) or "")
        if refusal is None:
            raise
        raise refusal() from None


def retry_on_conflict(use_case: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Run a use case again when the database ended its transaction in favour of another one.

    The use case must do nothing but its one transaction.

    Raises:
        ApiError: 503 when it was the victim every time.
    """

    @functools.wraps(use_case)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_ATTEMPTS):
            try:
                return await use_case(*args, **kwargs)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) not in _GIVEN_UP:
                    raise
        raise store_unavailable()

    return repeated


class Startup:
    """Waits in the background until the database answers and is migrated, then does what must come first.

    A service starts in any order with its database; until this is done it is not ready.
    """

    def __init__(self, engine: AsyncEngine, *, versions: Path, then: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._head = head(versions)
        self._then = then
        self._done = False
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> bool:
        """Return whether the database was reached and everything is prepared."""
        return self._done

    def start(self) -> None:
        """Begin to wait, in the background."""
        self._task = asyncio.create_task(self._wait(), name="database-startup")

    async def stop(self) -> None:
        """Give up waiting."""
        await end(self._task)

    async def _wait(self) -> None:
        reported = ""
        while True:
            try:
                reason = await self._attempt()
            except Exception as error:  # noqa: BLE001 - a loop that must not end; it is logged and starts again
                reason = type(error).__name__
                if reason != reported:
                    _log.error("database.preparation-failed", error=reason, exc_info=error)
            if reason is None:
                self._done = True
                return
            if reason != reported:
                reported = reason
                _log.warning("database.awaited", reason=reason)
            await asyncio.sleep(_STARTUP_RETRY_S)

    async def _attempt(self) -> str | None:
        """Return why the service cannot start yet; None once it has."""
        try:
            async with self._engine.connect() as connection:
                revision = await connection.scalar(text(SELECT_REVISION))
            if revision is None or revision < self._head:
                return "not migrated"
            await self._then()
        except ProgrammingError:
            return "not migrated"
        except (SQLAlchemyError, OSError) as error:
            return type(error).__name__
        return None
