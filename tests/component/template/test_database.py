"""The migrations of template-service create the tables that the code defines, and keep what is in them."""

import asyncio
import shutil
from pathlib import Path

import asyncpg
import msgspec
import nats
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.outbox import tables as outbox
from identity_common.stores import migrations
from identity_common.wire.search import SearchQuestion, SearchReply, search_subject
from provision import ServerAddresses
from template_service.app import VERSIONS
from template_service.schema import metadata
from tests.support.databases import differences, new_database
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.servers

NOT_OURS = {"alembic_version", "audit_outbox", "mail_outbox", *(statement.split()[2] for statement in outbox.CREATE)}


async def test_the_migrations_create_the_tables_in_the_code(template: Template) -> None:
    engine = create_async_engine(template.settings.database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences, metadata, NOT_OURS) == []
    await engine.dispose()


async def test_questions_on_the_bus_end_when_their_sender_has_given_up_and_take_few_connections(
    template: Template,
) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'organizations'::regclass"
    question = msgspec.json.encode(SearchQuestion("acme", ("organizations",), 5))
    management = await nats.connect(template.management.settings.nats_url, inbox_prefix="_INBOX_management")
    subject, most = search_subject(template.tenant_id), 0
    async with template.database.transaction():
        await template.database.execute("LOCK TABLE organizations IN ACCESS EXCLUSIVE MODE")
        asked = [asyncio.create_task(management.request(subject, question, timeout=WAIT_S)) for _ in range(80)]
        while not all(each.done() for each in asked):
            most = max(most, await template.database.fetchval(waiting))
        replies = [msgspec.json.decode(each.result().data, type=SearchReply) for each in asked]
        assert await template.database.fetchval(waiting) == 0
    found = msgspec.json.decode((await management.request(subject, question)).data, type=SearchReply)
    await management.close()
    assert replies == [SearchReply(unavailable=True)] * 80
    assert 0 < most < 4
    assert [group.name for group in found.groups] == ["organizations"]


@pytest.mark.heavy
async def test_members_get_the_name_that_a_user_gets_while_they_are_migrated(
    servers: ServerAddresses, tmp_path: Path
) -> None:
    for file in VERSIONS.glob("000[1-4]_*.py"):
        shutil.copy(file, tmp_path)
    blocked = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'known_users'::regclass)"
    async with new_database(servers, servers.template_database_url) as url:
        await asyncio.to_thread(migrations.migrate, url, tmp_path)
        database, replica = [await asyncpg.connect(url.replace("+asyncpg", "")) for _ in range(2)]
        await database.execute("""
            INSERT INTO known_users (tenant_id, id, name, is_suspended, tokens_valid_after, search_key, state)
                VALUES ('t', 'u1', 'Ada', false, 0, 'u1 ada', '{}');
            INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at)
                VALUES ('t', 'o1', 'u1', 'user', 0)
        """)
        async with replica.transaction():
            await replica.execute("UPDATE known_users SET name = 'Ada Lovelace', search_key = 'u1 ada lovelace'")
            migrating = asyncio.create_task(asyncio.to_thread(migrations.migrate, url, VERSIONS))
            async with asyncio.timeout(WAIT_S):
                while not await database.fetchval(blocked):  # noqa: ASYNC110 - seen in the database only
                    await asyncio.sleep(0.01)
        await migrating
        (row,) = await database.fetch("SELECT name, search_key FROM members")
        assert tuple(row) == ("Ada Lovelace", "u1 ada lovelace")
        for connection in (database, replica):
            await connection.close()


@pytest.mark.heavy
async def test_members_get_their_names_whichever_release_adds_them(servers: ServerAddresses, tmp_path: Path) -> None:
    """Revision 0005; an upgrade rolls, so the previous release goes on writing."""
    for file in VERSIONS.glob("000[1-4]_*.py"):
        shutil.copy(file, tmp_path)
    known = """
        INSERT INTO known_users (tenant_id, id, name, is_suspended, tokens_valid_after, search_key, state)
            VALUES ('t', 'u1', 'Ada', false, 0, 'u1 ada', '{}'), ('t', 'u2', NULL, false, 0, 'u2', '{}');
        INSERT INTO known_applications (tenant_id, id, name, type, state)
            VALUES ('t', 'a1', 'Robot', 'MachineToMachine', '{}');
    """
    added = """
        INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at)
        SELECT 't', $1, id, CASE id WHEN 'a1' THEN 'application' ELSE 'user' END, 0 FROM unnest($2::text[]) AS id
    """
    stored = "SELECT organization_id, member_id, name, search_key, listed_in FROM members ORDER BY 1, 2"
    ids = ["u1", "u2", "a1"]
    async with new_database(servers, servers.template_database_url) as url:
        await asyncio.to_thread(migrations.migrate, url, tmp_path)
        database = await asyncpg.connect(url.replace("+asyncpg", ""))
        await database.execute(known)
        await database.execute(added, "o1", ids)
        await asyncio.to_thread(migrations.migrate, url, VERSIONS)
        await database.execute(added, "o2", ids)
        rows = [
            ("a1", "Robot", None, "application"),
            ("u1", "Ada", "u1 ada", "user"),
            ("u2", None, "u2", "user"),
        ]
        assert [tuple(row) for row in await database.fetch(stored)] == [
            (organization, *row[:3], f"t/{organization}/{row[3]}") for organization in ("o1", "o2") for row in rows
        ]
        await database.close()
