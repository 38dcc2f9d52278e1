"""Reads by key, on connections of their own."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from identity_common.api_errors import ApiError
from identity_common.lookups import Lookups
from management_service.authentication import SELECT_FACTS
from template_service.authentication import SELECT_LIVE
from tests.support.template_api import Template

PID = "SELECT pg_backend_pid() AS pid"
REVISION = "SELECT revision FROM source_revision WHERE tenant_id = $1"


@asynccontextmanager
async def lookups_in(database_url: str) -> AsyncIterator[Lookups]:
    """Yield lookups with one connection."""
    lookups = Lookups(database_url, service="tests", connections=1)
    try:
        yield lookups
    finally:
        lookups.stop()


async def test_a_read_asks_an_index_however_small_the_table_is(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        await lookups.fetch("ANALYZE source_revision")
        await lookups.fetch(f"PREPARE revision_of AS {REVISION}")
        plan = await lookups.fetch("EXPLAIN EXECUTE revision_of('default')")
    assert "Index Scan" in plan[0]["QUERY PLAN"]
    assert "tenant_id = $1" in plan[1]["QUERY PLAN"]  # planned for every tenant, that is, once


async def test_who_asks_is_looked_up_by_its_key_whatever_the_planner_believes(template: Template) -> None:
    """A plan is kept while the tables grow: one that reads a small table whole would read the large one whole."""
    management = template.management.settings.database_url
    facts = await plan_of(SELECT_FACTS, "text, text[], text[], text[]", management)
    live = await plan_of(SELECT_LIVE, "text, text[], text[], bigint[]", template.settings.database_url)
    tables = ["applications", "known_applications", "known_users", "users", "users"]
    for plan in (facts, live):
        for table, condition in re.findall(r"Index (?:Only )?Scan using \w+ on (\w+).*\n *Index Cond: (.*)", plan):
            if table != "source_revision":
                tables.remove(table)
                assert "id = asked." in condition.replace("tenant_id", ""), plan
    assert tables == [], "each of them is asked by an index"


async def plan_of(statement: str, types: str, database_url: str) -> str:
    async with lookups_in(database_url) as lookups:
        await lookups.fetch(f"PREPARE who_asks ({types}) AS {statement}")
        rows = await lookups.fetch("EXPLAIN EXECUTE who_asks('default', '{a}', '{b}', '{1}')")
    return "\n".join(row["QUERY PLAN"] for row in rows)


async def test_a_connection_serves_one_read_after_the_other(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        assert await lookups.fetch(PID) == await lookups.fetch(PID)


async def test_a_connection_that_the_database_has_ended_is_replaced(template: Template) -> None:
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    async with lookups_in(template.settings.database_url) as lookups:
        for number in range(100):  # the end is seen before the read, in the middle of it, or behind it
            (ended,) = await lookups.fetch(PID)
            await other.execute("SELECT pg_terminate_backend($1)", ended["pid"])
            await asyncio.sleep(number % 5 * 0.0001)
            with contextlib.suppress(ApiError):  # who comes before the end has been seen is refused, once
                await lookups.fetch(PID)
            assert await lookups.fetch(PID) != [ended]
    await other.close()


async def test_a_database_that_does_not_answer_is_a_503() -> None:
    async with lookups_in("postgresql+asyncpg://nobody@127.0.0.1:1/none") as lookups:
        with pytest.raises(ApiError) as refusal:
            await lookups.fetch(PID)
    assert refusal.value.status == 503


async def test_a_statement_that_fails_is_a_503_and_the_next_one_is_answered(template: Template) -> None:
    async with lookups_in(template.settings.database_url) as lookups:
        with pytest.raises(ApiError) as refusal:
            await lookups.fetch("SELECT 1 / 0")
        assert refusal.value.status == 503
        assert await lookups.fetch("SELECT 1 AS one") == [(1,)]
