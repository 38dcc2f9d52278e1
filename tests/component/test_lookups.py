"""Reads by key, on connections of their own."""

import contextlib

import asyncpg
import pytest

from identity_common.api_errors import ApiError
from identity_common.lookups import Lookups
from tests.support.template_api import Template

PID = "SELECT pg_backend_pid() AS pid"
REVISION = "SELECT revision FROM source_revision WHERE tenant_id = $1"


async def test_a_read_asks_an_index_however_small_the_table_is(template: Template) -> None:
    lookups = Lookups(template.settings.database_url, service="tests")
    await lookups.fetch("ANALYZE source_revision")
    await lookups.fetch(f"PREPARE revision_of AS {REVISION}")
    plan = await lookups.fetch("EXPLAIN EXECUTE revision_of('default')")
    lookups.close()
    assert "Index Scan" in plan[0]["QUERY PLAN"]
    assert "tenant_id = $1" in plan[1]["QUERY PLAN"]  # planned for every tenant, that is, once


async def test_a_connection_serves_one_read_after_the_other(template: Template) -> None:
    lookups = Lookups(template.settings.database_url, service="tests")
    assert await lookups.fetch(PID) == await lookups.fetch(PID)
    lookups.close()


async def test_a_connection_that_the_database_has_ended_is_replaced(template: Template) -> None:
    lookups = Lookups(template.settings.database_url, service="tests")
    (ended,) = await lookups.fetch(PID)
    other = await asyncpg.connect(template.settings.database_url.replace("+asyncpg", ""))
    await other.execute("SELECT pg_terminate_backend($1)", ended["pid"])
    await other.close()

    with contextlib.suppress(ApiError):  # who comes before the end has been seen is refused
        await lookups.fetch(PID)
    assert await lookups.fetch(PID) != [ended]
    lookups.close()


async def test_a_database_that_does_not_answer_is_a_503() -> None:
    lookups = Lookups("postgresql+asyncpg://nobody@127.0.0.1:1/none", service="tests")
    with pytest.raises(ApiError) as refusal:
        await lookups.fetch(PID)
    assert refusal.value.status == 503


async def test_a_connection_is_not_used_again_once_a_read_has_failed(template: Template) -> None:
    lookups = Lookups(template.settings.database_url, service="tests")
    before = await lookups.fetch(PID)
    with pytest.raises(ApiError):
        await lookups.fetch("SELECT 1 / 0")
    assert await lookups.fetch(PID) != before
    lookups.close()
