"""A deleted user with many entries: they are erased in steps that read little, and that no head waits for."""

import asyncio
import json
from typing import Any

import pytest

from identity_common.clock import now_ms
from management_service.audit.storing.erasure import erase_some
from management_service.audit.storing.partitions import create_partitions, months_ahead
from tests.component.audit.test_ingestion import Trail, trail
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S

__all__ = ("trail",)

COUNT = 20_000
STORE = """
    INSERT INTO audit_entries
        (tenant_id, occurred_at, id, log, epoch, sequence, key, user_id, actor_id, entry, leaf_index, salt)
    SELECT $1, $2::bigint + number / 3, 'entry', 'exchanges', '', number, 'k',
        CASE WHEN number % 2 = 0 THEN 'ann' ELSE 'bob' END, CASE WHEN number % 4 > 0 THEN 'ann' END,
        '{"id": "entry", "address": "192.0.2.1"}', number, decode(repeat('00', 16), 'hex')
    FROM generate_series(1, $3) AS number
"""
"""All are about ann: half as the subject, of which half as the actor too, and half as the actor."""
REQUEST = "INSERT INTO audit_erasures (tenant_id, user_id, is_pending) VALUES ($1, 'ann', true)"
WITH_ADDRESS = "SELECT count(*) FROM audit_entries WHERE tenant_id = $1 AND entry LIKE '%192.0.2.1%'"
LEFT = "SELECT count(*) FROM audit_entries WHERE tenant_id = $1 AND salt IS NOT NULL"


def scans(plan: dict[str, Any]) -> list[dict[str, Any]]:
    below = [scan for each in plan.get("Plans", ()) for scan in scans(each)]
    return below if below or "Scan" not in plan["Node Type"] else [plan]


@pytest.mark.heavy
async def test_a_step_erases_a_bounded_number_of_indexed_entries(trail: Trail, management: Management) -> None:
    database, tenant = management.database, trail.tenant_id
    await create_partitions(database, months_ahead(now_ms()))
    apart = now_ms() + 3_600_000  # from the entries of other tests, which a scan in the order of times would read too
    await database.execute(STORE, tenant, apart, COUNT)
    await database.execute(REQUEST, tenant)
    await database.execute("ANALYZE audit_entries")
    asked: list[Any] = []
    with database.query_logger(asked.append):
        await erase_some(database, tenant)
    before = COUNT
    while (left := await database.fetchval(LEFT, tenant)) > 0:
        assert 0 < before - left <= 500
        before = left
        with database.query_logger(asked.append):
            await erase_some(database, tenant)
    statements = [each for each in asked if each.query.lstrip().startswith("(")]
    assert len(statements) >= COUNT / 500
    for each in (statements[0], statements[len(statements) // 2], statements[-1]):
        (plan,) = json.loads(await database.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {each.query}", *each.args))
        read = [
            (scan["Node Type"], scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))
            for scan in scans(plan["Plan"])
        ]
        assert {kind for kind, count in read if count} <= {"Index Scan", "Bitmap Index Scan"}
    assert await database.fetchval(WITH_ADDRESS, tenant) == 0


@pytest.mark.servers
async def test_a_step_of_an_erasure_that_hangs_holds_up_no_head(trail: Trail, management: Management) -> None:
    database, tenant = management.database, trail.tenant_id
    ingestion = await trail.ingest()
    await trail.publish(trail.entry(1))
    await trail.stored(1)
    await ingestion.loop.stop()
    await database.execute(STORE, tenant, now_ms() - 1000, 10)
    await database.execute(REQUEST, tenant)
    async with database.transaction():
        await database.fetch("SELECT FROM audit_entries WHERE tenant_id = $1 FOR UPDATE", tenant)
        await trail.publish(trail.entry(2))
        ingestion = await trail.ingest()
        async with asyncio.timeout(WAIT_S):
            while not await trail.fetch("SELECT FROM audit_trees WHERE tenant_id = $1 AND signed_size = 2"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    async with asyncio.timeout(WAIT_S):
        while await database.fetchval(LEFT, tenant) > 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await ingestion.loop.stop()
