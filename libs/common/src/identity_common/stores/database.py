"""A service's database: its engine, the translation of its errors, and the wait for it at start.

Owns the engine's settings, pages of lists, the errors for violated constraints, retries after deadlocks, and the wait
for a migrated database. Does not own any table.
"""

import asyncio
import contextlib
import functools
import logging
import time
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec, TypeVar
from urllib.parse import quote

import asyncpg
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    ExceptionContext,
    Select,
    Subquery,
    Text,
    bindparam,
    collate,
    event,
    func,
    literal,
    or_,
    pool,
    select,
    text,
)
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InterfaceError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from identity_common.background import end
from identity_common.database_address import SCHEME
from identity_common.failures import AnyFailure, StoreUnavailable, log_fields
from identity_common.lifetime import Lifetime
from identity_common.paging import Page
from identity_common.stores.database_connection import Connection, UnansweredCommitError
from identity_common.stores.database_servers import THIS_SERVER, database_servers
from identity_common.stores.migrations import SELECT_SCHEMA, UnknownSchemaError, is_migrated
from identity_common.telemetry.logs import get_logger

P = ParamSpec("P")
R = TypeVar("R")
IsolationLevel = Literal["READ COMMITTED", "REPEATABLE READ"]

_log = get_logger(__name__)

_POOL_TIMEOUT_S: Final = 2.0
_STATEMENT_S: Final = 4.0
_ANSWER_S: Final = 1.0
"""How much later than the statement's end its answer may arrive; then the server is silent."""
LONG_STATEMENT_S: Final = 600.0
"""For commands, and for repairs that rewrite whole tables."""
_STARTUP_RETRY_S: Final = 0.25
_ATTEMPTS: Final = 4
_SERVER: Final = "server"
_ANSWER: Final = "answer"
_NEW: Final = "new"
_CANCELLED: Final = "57014"
_READ_ONLY: Final = "25006"
_DENIED: Final = "42501"
_WHY: Final = "the database does not answer right now"
_UNCERTAIN: Final = "the database has not confirmed a change, which may or may not have been made"
_UNCONFIRMED: Final = (
    "The database has not confirmed the change in time: it may or may not have been made. Read it, and try again later."
)
_RETRYABLE: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock

# SQLSTATE classes of failures of the server rather than the statement: connection, login (wrong password, no such role
# or database), resources, operator intervention (starting, stopping, cancelled), and a write to a standby
_STORE_STATES: Final = ("08", "28", "3D", "53", "57", _READ_ONLY)


class Waits:
    """How often, and how long, requests have waited for a connection."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0


class MeasuredPool(pool.AsyncAdaptedQueuePool):
    """A pool of connections that counts the waits for one.

    The place of a connection that waits for the answer to a COMMIT stays taken: the server keeps its session, too.

    Attributes:
        waits: Since the start of the process.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.waits = Waits()

    def connect(self) -> pool.PoolProxiedConnection:
        """Take a connection; wait if all are in use."""
        if self.checkedout() < self.size():
            return super().connect()
        started = time.perf_counter()
        try:
            return super().connect()
        finally:
            self.waits.count += 1
            self.waits.seconds += time.perf_counter() - started

    def _do_return_conn(self, record: pool.ConnectionPoolEntry) -> None:
        answer = record.info.pop(_ANSWER, None) if record.dbapi_connection is None else None
        if answer is None or answer.done():
            super()._do_return_conn(record)
        else:
            answer.add_done_callback(lambda _: super(MeasuredPool, self)._do_return_conn(record))


# SQLAlchemy logs a pool under the name of its class; its own pools say nothing below this level either.
logging.getLogger(f"{MeasuredPool.__module__}.{MeasuredPool.__name__}").setLevel(logging.WARNING)


def create_database_engine(
    url: str, *, service: str, pool_size: int, statement_timeout_s: float = _STATEMENT_S
) -> AsyncEngine:
    """Return an engine that opens connections on demand and replaces broken ones.

    A wait ends after five seconds: the server cancels a longer statement, the answer to a COMMIT is not awaited any
    longer, and a server that says nothing is left.

    Args:
        url: ``postgresql+asyncpg://…``.
        service: Name of the sessions in ``pg_stat_activity``.
        pool_size: Maximum number of connections; a request that gets none within two seconds is answered 503.
        statement_timeout_s: The database cancels a longer statement; see ``cancelled``.
    """
    servers = database_servers(url)
    options = {
        "command_timeout": statement_timeout_s + _ANSWER_S,
        "server_settings": {
            "application_name": service,
            "jit": "off",
            "statement_timeout": str(int(statement_timeout_s * 1000)),
        },
    }
    engine = create_async_engine(
        f"{SCHEME}/{quote(servers.address.database)}",
        async_creator=functools.partial(servers.connect, **options),
        hide_parameters=True,
        poolclass=MeasuredPool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=_POOL_TIMEOUT_S,
        pool_use_lifo=True,
    )
    event.listen(engine.sync_engine, "connect", _note_server)
    event.listen(engine.sync_engine, "checkout", _refuse_closed)
    event.listen(engine.sync_engine, "invalidate", _note_answer)
    event.listen(engine.sync_engine, "handle_error", _leave_server)
    return engine


def _note_server(connection: Any, record: pool.ConnectionPoolEntry) -> None:
    """Read which server a new connection is to: a write then compares it without a round trip."""
    cursor = connection.cursor()
    cursor.execute(f"SELECT {THIS_SERVER}")
    record.info[_SERVER] = cursor.fetchone()[0]
    cursor.close()
    connection.rollback()
    record.info[_NEW] = True


def server_of(connection: AsyncConnection) -> str:
    """Return the server of a connection, as ``THIS_SERVER``."""
    return str(connection.info[_SERVER])


def _note_answer(connection: Any, record: pool.ConnectionPoolEntry, _: BaseException | None) -> None:
    """Have the pool wait for the answer to a COMMIT on a connection that it discards."""
    driver: Connection = connection.driver_connection
    if driver.is_set_aside:
        record.info[_ANSWER] = driver.answer


def _leave_server(context: ExceptionContext) -> None:
    """Discard a connection that is of no use any more.

    It is to a primary that has become a standby, which does not end its sessions in every setup; or its server is
    silent, then all others of the pool are discarded as well; or a COMMIT is unanswered.
    """
    error = context.original_exception
    driver = getattr(error, "__cause__", None)
    if getattr(error, "sqlstate", None) == _READ_ONLY or isinstance(error, TimeoutError):
        context.is_disconnect = True
    elif isinstance(driver, UnansweredCommitError):
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


def _refuse_closed(connection: Any, record: pool.ConnectionPoolEntry, _: pool.PoolProxiedConnection) -> None:
    """Have the pool replace a connection that the driver knows to be closed; unlike a ping, it needs no round trip."""
    is_new = record.info.pop(_NEW, False)
    if connection.driver_connection.is_closed():
        raise ConnectionResetError if is_new else DisconnectionError


def failure_of(error: Exception) -> StoreUnavailable | None:
    """Return the failure behind a driver's error: the connection was lost or cannot be made; None for any other."""
    is_down = isinstance(error, InterfaceError | PoolTimeoutError | OSError) or (
        isinstance(error, DBAPIError)
        and (
            error.connection_invalidated
            or isinstance(error.driver_exception, asyncpg.InternalClientError)  # the server is ending the session
            or str(getattr(error.orig, "sqlstate", "")).startswith(_STORE_STATES)
        )
    )
    if not is_down:
        return None
    if isinstance(error, DBAPIError) and isinstance(error.driver_exception, UnansweredCommitError):
        return StoreUnavailable("postgresql", driver_error(error), why=_UNCERTAIN, message=_UNCONFIRMED)
    return StoreUnavailable("postgresql", driver_error(error), why=_WHY)


@contextlib.contextmanager
def database_answers() -> Generator[None, None, None]:
    """Turn a lost or refused connection in the body into a failure; its transaction may or may not be committed.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure from None


def driver_error(error: Exception) -> str:
    """Return the name of the driver's error, such as ``InvalidPasswordError``, for a log."""
    cause = error.driver_exception if isinstance(error, DBAPIError) else None
    return type(cause or error).__name__


@contextlib.contextmanager
def cancelled(refusal: Callable[[], AnyFailure]) -> Generator[None, None, None]:
    """Raise ``refusal()`` if the database cancels a statement of the body that takes too long."""
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _CANCELLED:
            raise
        raise refusal() from None


_LIMIT: Final = select(func.set_config("statement_timeout", bindparam("ms"), True))


@contextlib.asynccontextmanager
async def limited(
    engine: AsyncEngine, timeout_s: float, *, isolation_level: IsolationLevel = "READ COMMITTED"
) -> AsyncGenerator[AsyncConnection, None]:
    """Provide a connection for reads whose statements the database cancels after this time; see ``cancelled``."""
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level=isolation_level)
        await connection.execute(_LIMIT, {"ms": str(max(1, int(timeout_s * 1000)))})
        yield connection


_SIZE: Final = bindparam("page_size", type_=BigInteger)
_OFFSET: Final = bindparam("page_offset", type_=BigInteger)


class PagedList:
    """A list of which pages are read: the rows of a page, and the number of rows of the whole list.

    Without conditions and a search, its two statements are the same for every page. They are built once: building them
    takes longer than all else that a page of a short list needs.

    Args:
        statement: Selects the whole list, in a total order.
        searched: Columns that the page's search term is looked up in; empty if the conditions already do.
        completed: Selects from the page, in the same order, with what is costly to compute: in the statement itself,
            PostgreSQL would compute it for every row before the page as well.
    """

    def __init__(
        self,
        statement: Select[Any],
        *,
        searched: Sequence[ColumnElement[Any]] = (),
        completed: Callable[[Subquery], Select[Any]] | None = None,
    ) -> None:
        self._whole = statement
        self._searched = searched
        self._completed = completed
        self._unfiltered = self._statements(statement)

    async def fetch(
        self,
        connection: AsyncConnection,
        values: Mapping[str, object],
        page: Page,
        *,
        where: Sequence[ColumnElement[bool]] = (),
    ) -> tuple[Sequence[Any], int]:
        """Return the rows of a page and the number of rows of the whole list.

        Args:
            connection: Connection to the database.
            values: Values of the parameters.
            page: The page.
            where: Conditions on the rows.
        """
        conditions = [*where]
        if page.search and self._searched:
            # Names are composed (NFC), descriptions are stored as they were given.
            terms = {page.search, unicodedata.normalize("NFC", page.search)}
            conditions.append(or_(*(_contains(column, term) for column in self._searched for term in terms)))
        count, rows = self._statements(self._whole.where(*conditions)) if conditions else self._unfiltered
        total = await connection.scalar(count, values)
        of_page = {**values, _SIZE.key: page.size, _OFFSET.key: page.offset}
        return (await connection.execute(rows, of_page)).all(), total or 0

    def _statements(self, whole: Select[Any]) -> tuple[Select[Any], Select[Any]]:
        count = select(func.count()).select_from(whole.order_by(None).subquery())
        page = whole.limit(_SIZE).offset(_OFFSET)
        return count, page if self._completed is None else self._completed(page.subquery("page"))


def is_none_of(column: ColumnElement[str], ids: Sequence[str]) -> ColumnElement[bool]:
    """Return whether a column has none of these values, which may be many.

    An anti-join rather than ``<> ALL``, for which a prepared statement compares each row with every value in turn. The
    same happens to the anti-join if its subquery has a LIMIT: end the subquery with OFFSET 0.
    """
    excluded = func.unnest(literal(list(ids), type_=ARRAY(Text))).column_valued("excluded")
    return ~select(literal(1)).where(excluded == column).exists()


def _contains(column: ColumnElement[Any], search: str) -> ColumnElement[bool]:
    # With the collation "C" of the columns, lower() would affect ASCII letters only.
    return func.strpos(func.lower(collate(column, "default")), func.lower(search)) > 0


def violated_constraint(error: IntegrityError) -> str | None:
    """Return the name of the violated constraint."""
    return getattr(error.driver_exception, "constraint_name", None)


@contextlib.contextmanager
def refusals(by_constraint: Mapping[str, Callable[[], AnyFailure]]) -> Generator[None, None, None]:
    """Raise the error that belongs to a constraint if the body violates it."""
    try:
        yield
    except IntegrityError as error:
        refusal = by_constraint.get(violated_constraint(error) or "")
        if refusal is None:
            raise
        raise refusal() from None


def retry_on_conflict(use_case: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """Retry a use case whose transaction was the victim of a deadlock or a serialization failure.

    The use case must consist of this one transaction.

    Raises:
        StoreUnavailable: Every attempt failed.
    """

    @functools.wraps(use_case)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_ATTEMPTS):
            try:
                return await use_case(*args, **kwargs)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) not in _RETRYABLE:
                    raise
                cause = driver_error(error)
        raise StoreUnavailable("postgresql", cause)

    return repeated


class Startup:
    """Waits in the background until the database answers and is migrated, then prepares the service.

    A service may start before its database; it is not ready until then. On a database that newer code has migrated it
    becomes ready only if that schema still serves this code.

    Args:
        engine: Engine of the database.
        versions: The directory of the service's revisions.
        then: Prepares the service, and starts in the lifetime what needs the database. What a failed preparation has
            started is stopped before the next one.
    """

    def __init__(self, engine: AsyncEngine, *, versions: Path, then: Callable[[Lifetime], Awaitable[None]]) -> None:
        self._engine = engine
        self._versions = versions
        self._then = then
        self._lifetime = Lifetime()
        self._done = False
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> bool:
        """Return whether the service is prepared."""
        return self._done

    def start(self) -> None:
        """Begin to wait in the background."""
        self._task = asyncio.create_task(self._wait(), name="database-startup")

    async def stop(self) -> None:
        """Stop waiting, and what was started."""
        await end(self._task)
        await self._lifetime.end()

    async def _wait(self) -> None:
        reported = ""
        while True:
            try:
                reason = await self._attempt()
            except Exception as error:  # noqa: BLE001 - logged, and retried until it succeeds
                reason = log_fields(error)["error"]
                if reason != reported:
                    _log.error("database.preparation-failed", **log_fields(error), exc_info=error)
            if reason is None:
                self._done = True
                return
            if reason != reported:
                reported = reason
                _log.warning("database.not-ready", reason=reason)
            await asyncio.sleep(_STARTUP_RETRY_S)

    async def _attempt(self) -> str | None:
        """Prepare the service; return why that is not possible yet, or None once it is done."""
        try:
            async with self._engine.connect() as connection:
                schema = (await connection.execute(text(SELECT_SCHEMA))).first()
            if schema is None or not is_migrated(schema.revision, schema.oldest_code, self._versions):
                return "not migrated"
            await self._lifetime.end()  # what a failed preparation has started
            await self._then(self._lifetime)
        except ProgrammingError as error:
            is_denied = getattr(error.orig, "sqlstate", None) == _DENIED
            return str(error.driver_exception) if is_denied else "not migrated"
        except UnknownSchemaError as error:
            return str(error)
        except (SQLAlchemyError, OSError) as error:
            return driver_error(error)
        return None
