"""A migration that has to wait for a lock on a table: requests that use the table do not wait for long behind it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

import management_service.app
import template_service.app
import token_service.app
from identity_common.stores import migrations
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


ONE_ROW = r"""
    SELECT format(
        'INSERT INTO %I (%s) VALUES (%s)', table_name, string_agg(quote_ident(column_name), ', '),
        string_agg(CASE column_name
            WHEN 'algorithm' THEN quote_literal('ES256') WHEN 'status' THEN quote_literal('Next')
            ELSE CASE data_type WHEN 'boolean' THEN 'false' WHEN 'ARRAY' THEN quote_literal('{}')
            WHEN 'jsonb' THEN quote_literal('{}') ELSE quote_literal('1') END END, ', ')
    )
    FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = 'public' AND is_generated = 'NEVER' AND identity_generation IS NULL
        AND table_type = 'BASE TABLE' AND table_name <> 'alembic_version' AND table_name NOT LIKE '%\_rest'
    GROUP BY table_name
"""


@pytest.mark.parametrize(
    "versions", [management_service.app.VERSIONS, template_service.app.VERSIONS, token_service.app.VERSIONS]
)
async def test_all_revisions_can_be_undone_and_applied_again_with_rows_in_every_table(
    servers: ServerAddresses, versions: Path
) -> None:
    """No command does this: it shows that a revision says all that it changes."""
    async with new_database(servers, servers.template_database_url) as url:
        await asyncio.to_thread(migrate, url, versions)
        database = await asyncpg.connect(
            urlsplit(servers.admin_postgres_url)._replace(path=urlsplit(url).path).geturl()
        )
        await database.execute("SET session_replication_role = replica")  # no foreign keys, no triggers
        for partitioned in await database.fetch("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'p'"):
            await database.execute(f"CREATE TABLE {partitioned[0]}_rest PARTITION OF {partitioned[0]} DEFAULT")
            await database.execute(f"ALTER TABLE {partitioned[0]}_rest OWNER TO {urlsplit(url).username}")
        for (statement,) in await database.fetch(ONE_ROW):
            await database.execute(statement)
        tables = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        before = set(await database.fetch(tables))
        engine = create_async_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(downgrade, versions)
        left = await database.fetch(f"{tables} AND table_name <> 'alembic_version'")
        assert left == []
        await asyncio.to_thread(migrate, url, versions)
        await engine.dispose()
        after = set(await database.fetch(tables))
        assert {each for each in before if not each["table_name"].endswith("_rest")} == after
        await database.close()


def downgrade(connection: Connection, versions: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("version_locations", str(versions))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    command.downgrade(config, "base")
