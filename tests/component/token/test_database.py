"""The database of token-service: its migrations create the tables that the code defines, and keep the rows."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.stores.migrations import migrate
from provision import ServerAddresses
from tests.support.databases import differences, new_database
from token_service.app import VERSIONS
from token_service.schema import metadata

pytestmark = pytest.mark.servers

NOT_OURS = {"alembic_version", "audit_count", "audit_outbox", "signing_key"}


@pytest_asyncio.fixture
async def database_url(servers: ServerAddresses) -> AsyncIterator[str]:
    """A new, empty database."""
    async with new_database(servers, servers.token_database_url) as url:
        yield url


async def test_the_migrations_create_the_tables_that_the_code_expects(database_url: str) -> None:
    await asyncio.to_thread(migrate, database_url, VERSIONS)
    engine = create_async_engine(database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences, metadata, NOT_OURS) == []
    await engine.dispose()


async def test_authorizations_from_before_the_third_revision_count_as_redeemed(
    database_url: str, tmp_path: Path
) -> None:
    """So a code that is older than the column cannot be redeemed a second time."""
    for file in VERSIONS.glob("000[12]_*.py"):
        shutil.copy(file, tmp_path)
    await asyncio.to_thread(migrate, database_url, tmp_path)
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    row = ("default", "a", "user", "app", 1, "{}", 5, 9)
    columns = "tenant_id, id, user_id, application_id, auth_time, consented, begun_at, tokens_expire_at"
    await connection.execute(
        f"INSERT INTO authorizations ({columns}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        *row,
    )
    await asyncio.to_thread(migrate, database_url, VERSIONS)

    kept = await connection.fetchrow(f"SELECT {columns}, redeemed_at, ended_at FROM authorizations")
    assert tuple(kept) == (*row, 5, None)
    await connection.close()


async def test_what_was_got_before_the_fourth_revision_counts_as_got_without_a_page(
    database_url: str, tmp_path: Path
) -> None:
    for file in VERSIONS.glob("000[1-3]_*.py"):
        shutil.copy(file, tmp_path)
    await asyncio.to_thread(migrate, database_url, tmp_path)
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    await connection.execute("INSERT INTO consents VALUES ('default', 'user', 'app', 'scope', '', 'profile', 1)")
    await connection.execute("INSERT INTO consents VALUES ('default', 'user', 'app', 'organization', '', 'org', 1)")
    columns = "tenant_id, id, user_id, application_id, auth_time, consented, begun_at, tokens_expire_at"
    await connection.execute(
        f"INSERT INTO authorizations ({columns}) VALUES ('default', 'a', 'user', 'app', 1, '{{}}', 5, 9)"
    )
    await asyncio.to_thread(migrate, database_url, VERSIONS)

    consents = await connection.fetch("SELECT kind, implicit FROM consents ORDER BY kind")
    assert [tuple(row) for row in consents] == [("organization", False), ("scope", True)]
    assert await connection.fetchval("SELECT first_party FROM authorizations") is True
    await connection.close()
