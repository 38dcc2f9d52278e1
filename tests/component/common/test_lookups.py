"""Reads by key, on dedicated connections."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from identity_common.failures import StoreUnavailable
from identity_common.stores.lookups import KeyLookup, Lookups
from identity_common.stores.migrations import migrate
from management_service.app import VERSIONS as MANAGEMENT
from management_service.authentication import SELECT_FACTS
from provision import ServerAddresses
from template_service.app import VERSIONS as TEMPLATE
from template_service.authentication import SELECT_LIVE
from tests.support.databases import new_database
from tests.support.template_api import Template

pytestmark = pytest.mark.servers

PID = KeyLookup("SELECT pg_backend_pid() AS pid")
REVISION = "SELECT revision FROM source_revision WHERE tenant_id = $1"


@asynccontextmanager
async def lookups_in(database_url: str, *, plan_lifetime_s: float = 60) -> AsyncIterator[Lookups]:
    """Yield lookups on one connection."""
    lookups = Lookups(database_url, service="tests", connections=1, plan_lifetime_s=plan_lifetime_s)
    try:
        yield lookups
    finally:
        lookups.stop()


async def test_a_read_uses_an_index_however_small_the_table_is(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        await lookups.fetch(KeyLookup("ANALYZE source_revision"))
        await lookups.fetch(KeyLookup(f"PREPARE revision_of AS {REVISION}"))
        plan = await lookups.fetch(KeyLookup("EXPLAIN EXECUTE revision_of('default')"))
    assert "Index Scan" in plan[0]["QUERY PLAN"]
    assert "tenant_id = $1" in plan[1]["QUERY PLAN"]  # a generic plan: made once, for every tenant


USERS = """
    INSERT INTO users (tenant_id, id, is_email_verified, is_suspended, tokens_valid_after, custom_data, profile,
        search_key, created_at, updated_at)
    SELECT 'default', number, false, false, 0, '{}', '{}', '', 0, 0 FROM generate_series($1::int, $2) AS number
"""
APPLICATIONS = """
    INSERT INTO applications (tenant_id, id, name, type, is_third_party, redirect_uris, post_logout_redirect_uris,
        allow_token_exchange, cors_allowed_origins, id_token_ttl_s, refresh_token_ttl_days, rotate_refresh_token,
        always_issue_refresh_token, custom_data, created_at, updated_at)
    SELECT 'default', number, '', 'SPA', false, '{}', '{}', false, '{}', 0, 0, false, false, '{}', 0, 0
    FROM generate_series($1::int, $2) AS number
"""
KNOWN_USERS = """
    INSERT INTO known_users (tenant_id, id, is_suspended, tokens_valid_after, search_key, state)
    SELECT 'default', number, false, 0, '', '' FROM generate_series($1::int, $2) AS number
"""
KNOWN_APPLICATIONS = """
    INSERT INTO known_applications (tenant_id, id, name, type, state)
    SELECT 'default', number, '', 'SPA', '' FROM generate_series($1::int, $2) AS number
"""


@pytest.mark.heavy
async def test_management_finds_the_caller_by_primary_key_however_fast_the_tables_grow(
    servers: ServerAddresses,
) -> None:
    async with new_database(servers, servers.management_database_url) as url:
        await asyncio.to_thread(migrate, url, MANAGEMENT)
        plan = await plan_of(SELECT_FACTS, "text, text[], text[], bigint[], text[]", url, grown=(USERS, APPLICATIONS))
    assert indexes_used(plan) == ["applications_pkey", "users_pkey", "users_pkey"], plan


@pytest.mark.heavy
async def test_template_finds_the_caller_by_primary_key_however_fast_the_tables_grow(servers: ServerAddresses) -> None:
    async with new_database(servers, servers.template_database_url) as url:
        await asyncio.to_thread(migrate, url, TEMPLATE)
        grown = (KNOWN_USERS, KNOWN_APPLICATIONS)
        plan = await plan_of(SELECT_LIVE, "text, text[], text[], bigint[]", url, grown=grown)
    assert indexes_used(plan) == ["known_applications_pkey", "known_users_pkey"], plan


async def plan_of(statement: str, types: str, database_url: str, *, grown: Sequence[str]) -> str:
    """Return the plan of PostgreSQL for tables of thousands of rows whose statistics say two."""
    database = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    for insertion in grown:
        await database.execute(insertion, 1, 2)
    await database.execute("ANALYZE")
    for insertion in grown:
        await database.execute(insertion, 3, 3000)
    await database.close()
    async with lookups_in(database_url) as lookups:
        arguments = ", ".join(["'default'", *["'{1}'"] * types.count("[]")])
        await lookups.fetch(KeyLookup(f"PREPARE caller_facts ({types}) AS {statement}"))
        plan = await lookups.fetch(KeyLookup(f"EXPLAIN EXECUTE caller_facts({arguments})"))
    return "\n".join(line["QUERY PLAN"] for line in plan)


def indexes_used(plan: str) -> list[str]:
    """Return the indexes that are scanned for one row each, sorted."""
    asked = r"Index (?:Only )?Scan using (\w+) on .*\n *Index Cond: \(\(tenant_id = \$1\) AND \(id = caller\.\w+\)\)\n"
    return sorted(re.findall(asked, f"{plan}\n"))


async def test_a_statement_is_prepared_again_after_a_while(template: Template) -> None:
    """All indexes of an empty table cost the same: a plan made then might use another one than the primary key."""
    planned_at = KeyLookup(
        "SELECT prepare_time FROM pg_prepared_statements WHERE statement LIKE 'SELECT prepare_time FROM pg_p%'"
    )
    async with lookups_in(template.settings.database_url) as lookups:
        first = await lookups.fetch(planned_at)
        assert await lookups.fetch(planned_at) == first
    async with lookups_in(template.settings.database_url, plan_lifetime_s=0.05) as lookups:
        first = await lookups.fetch(planned_at)
        for _ in range(200):
            await asyncio.sleep(0.05)
            again = await lookups.fetch(planned_at)
            if again != first:
                break
        assert first < again
        assert len(again) == 1, "the older one is deallocated"


async def test_a_connection_is_reused(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        assert await lookups.fetch(PID) == await lookups.fetch(PID)


@pytest.mark.heavy
async def test_a_connection_that_the_database_closes_is_replaced(template: Template) -> None:
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    async with lookups_in(template.settings.database_url) as lookups:
        for number in range(100):  # the close is noticed before, during or after the read
            (ended,) = await lookups.fetch(PID)
            await other.execute("SELECT pg_terminate_backend($1)", ended["pid"])
            await asyncio.sleep(number % 5 * 0.0001)
            with contextlib.suppress(StoreUnavailable):  # a read before the close is noticed fails, once
                await lookups.fetch(PID)
            assert await lookups.fetch(PID) != [ended]
    await other.close()


async def test_a_database_that_does_not_answer_is_unavailable() -> None:
    async with lookups_in("postgresql+asyncpg://nobody@127.0.0.1:1/none") as lookups:
        with pytest.raises(StoreUnavailable):
            await lookups.fetch(PID)


async def test_a_statement_that_fails_is_unavailable_and_the_next_one_is_answered(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        with pytest.raises(StoreUnavailable):
            await lookups.fetch(KeyLookup("SELECT 1 / 0"))
        assert await lookups.fetch(KeyLookup("SELECT 1 AS one")) == [(1,)]
