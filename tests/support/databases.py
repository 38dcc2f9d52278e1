"""Databases of a service: new ones, comparison with the table definitions, collected statements, waiting for a lock."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData, event, make_url
from sqlalchemy.engine import Engine

from provision import ServerAddresses
from tests.support.waiting import WAIT_S

# Not pg_stat_activity, which does not change within a transaction.
_IS_WAITED_FOR = "SELECT EXISTS (SELECT FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"


@asynccontextmanager
async def new_database(servers: ServerAddresses, database_url: str) -> AsyncIterator[str]:
    """Yield the URL of a new database; drop it when the body ends.

    Args:
        servers: Where it is created.
        database_url: The existing database of the service; the new one gets the same owner.
    """
    name = f"new_{secrets.token_hex(6)}"
    url = urlsplit(database_url)
    administrator = await asyncpg.connect(servers.admin_postgres_url)
    try:
        await administrator.execute(f"CREATE DATABASE {name} OWNER {url.username}")
        try:
            yield url._replace(path=f"/{name}").geturl()
        finally:
            await administrator.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await administrator.close()


@contextmanager
def locked(database_url: str, lock: str, *arguments: Any) -> Iterator[Callable[[], None]]:
    """Hold what a statement locks, for a test that is no coroutine; yield what waits until another session wants it.

    Release it soon after that: the services give up on a statement after some seconds.
    """

    async def hold() -> asyncpg.Connection:
        connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
        await connection.execute("BEGIN")
        await connection.execute(lock, *arguments)
        return connection

    with asyncio.Runner() as runner, ThreadPoolExecutor(1) as thread:
        connection = thread.submit(runner.run, hold()).result()
        try:
            yield lambda: thread.submit(runner.run, until_waited_for(connection)).result()
        finally:
            thread.submit(runner.run, connection.close()).result()


def differences(connection: Connection, metadata: MetaData, not_ours: Collection[str]) -> list[object]:
    """Return the differences between a database and the table definitions in the code.

    Args:
        connection: To the database.
        metadata: The table definitions.
        not_ours: Tables that they do not cover.
    """
    context = MigrationContext.configure(
        connection, opts={"include_name": lambda name, kind, _: kind != "table" or name not in not_ours}
    )
    return list(compare_metadata(context, metadata))


@contextmanager
def statements(database_url: str) -> Iterator[list[str]]:
    """Collect the statements that this task sends through any engine; background workers do not count."""
    sent: list[str] = []
    task = asyncio.current_task()
    database = make_url(database_url).database

    def remember(connection: Connection, _: Any, statement: str, *__: Any) -> None:
        if connection.engine.url.database == database and asyncio.current_task() is task:
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", remember)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", remember)


async def until_waited_for(connection: asyncpg.Connection) -> None:
    """Wait until another session waits for a lock of this one."""
    async with asyncio.timeout(WAIT_S):
        while not await connection.fetchval(_IS_WAITED_FOR):  # noqa: ASYNC110 - PostgreSQL does not tell
            await asyncio.sleep(0.01)
