"""A migration that has to wait for a lock on a table: requests that use the table do not wait for long behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from identity_common.stores.migrations import migrate
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from tests.support.databases import new_database
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.servers, pytest.mark.heavy]

REVISION = """
from alembic import op

revision, down_revision = {0!r}, {1!r}

def upgrade():
    op.execute({2!r})
"""
WAITS = """
    SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock' AND relation = 'things'::regclass
"""


@pytest_asyncio.fixture
async def database_url(servers: ServerAddresses, tmp_path: Path) -> AsyncIterator[str]:
    """A database with the table ``things``, which the next revision in ``tmp_path`` alters."""
    async with new_database(servers, servers.template_database_url) as url:
        add_revision(tmp_path, "0001", None, "CREATE TABLE things (id integer)")
        await asyncio.to_thread(migrate, url, tmp_path)
        add_revision(tmp_path, "0002", "0001", "ALTER TABLE things ADD COLUMN name text")
        yield url


def add_revision(directory: Path, revision: str, after: str | None, statement: str) -> None:
    (directory / f"{revision}_next.py").write_text(REVISION.format(revision, after, statement))


async def connect(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url.replace("+asyncpg", ""))


async def wait_until_it_waits(connection: asyncpg.Connection) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await connection.fetchval(WAITS):  # noqa: ASYNC110 - seen in the database only
            await asyncio.sleep(0.01)


async def test_reads_go_on_while_a_long_transaction_keeps_a_migration_waiting(
    database_url: str, tmp_path: Path
) -> None:
    holder, reader, observer = [await connect(database_url) for _ in range(3)]
    with captured_logs("template-service") as log:
        async with holder.transaction():
            await holder.fetch("SELECT * FROM things")  # as pg_dump, or a report
            migrating = asyncio.create_task(asyncio.to_thread(migrate, database_url, tmp_path))
            for _ in range(2):
                await wait_until_it_waits(observer)
                async with asyncio.timeout(WAIT_S):
                    assert await reader.fetch("SELECT * FROM things") == []
            assert not migrating.done()
        await migrating
    assert await reader.fetch("SELECT id, name FROM things") == []
    assert '"event":"migration.blocked"' in log.getvalue()
    for connection in (holder, reader, observer):
        await connection.close()


async def test_a_migration_that_fails_for_another_reason_is_not_repeated(database_url: str, tmp_path: Path) -> None:
    add_revision(tmp_path, "0003", "0002", "ALTER TABLE nothing ADD COLUMN name text")
    with captured_logs("template-service") as log, pytest.raises(Exception, match='relation "nothing" does not exist'):
        await asyncio.to_thread(migrate, database_url, tmp_path)
    assert log.getvalue() == ""
