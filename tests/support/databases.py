"""Databases of a service: new ones, whether migrations make what the code expects, what is sent to them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData, event, make_url
from sqlalchemy.engine import Engine

from all_in_one.provision import ServerAddresses


@asynccontextmanager
async def new_database(servers: ServerAddresses, database_url: str) -> AsyncIterator[str]:
    """Yield its address; it is gone when the body ends.

    Args:
        servers: Where it is made.
        database_url: The service's other one: whoever that belongs to, owns the new one.
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


def differences(connection: Connection, metadata: MetaData, not_ours: Collection[str]) -> list[object]:
    """Return what differs between a database and what the code says of its tables.

    Args:
        connection: To the database.
        metadata: What the code says.
        not_ours: Tables that it says nothing of.
    """
    context = MigrationContext.configure(
        connection, opts={"include_name": lambda name, kind, _: kind != "table" or name not in not_ours}
    )
    return list(compare_metadata(context, metadata))


@contextmanager
def statements(database_url: str) -> Iterator[list[str]]:
    """Collect what this task sends to a database through any engine; workers in the background do not count."""
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
