"""Pages of the audit trail and of impersonations over millions of entries: how long each documented filter takes."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import asyncpg
import httpx2 as httpx

from identity_common.clock import now_ms
from management_service.audit.storing.partitions import Month, create_partitions

_TENANT: Final = "default"
_MONTHS: Final = 12
_AT_ONCE: Final = 100_000
_PAGE: Final = 20
_ROUNDS: Final = 50
_TARGET_MS: Final = 50

# Of five entries, three belong to an exchange and two are writes, whose ids a trigger stores in another table. Users,
# actors, applications and organizations are drawn unevenly, once per impersonation: number 1 of each has a quarter.
_ADD: Final = """
    WITH drawn AS (
        SELECT number, $2::bigint + (number * $3::float8 / $4::bigint)::bigint AS at, number % 5 AS kind,
            'user' || (CASE WHEN draw % 4 = 0 THEN 1 ELSE draw * 7919 % 100000 END) AS user_id,
            'actor' || draw % 1000 AS actor_id,
            'app' || (CASE WHEN draw % 4 = 0 THEN 1 ELSE draw % 200 END) AS application_id,
            'org' || (CASE WHEN draw % 4 = 0 THEN 1 ELSE draw % 10000 END) AS organization_id
        FROM generate_series($5::bigint, $6::bigint) AS number,
            LATERAL (SELECT CASE WHEN number % 5 < 3 THEN number / 5 ELSE number END AS draw) AS drawn_once
    ), named AS (
        SELECT *, CASE kind WHEN 0 THEN 'subject-token.issued' WHEN 1 THEN 'token.exchange.taken'
                WHEN 2 THEN 'token.exchange.succeeded' WHEN 3 THEN 'management.user.update'
                ELSE 'template.member.update' END AS key,
            CASE kind WHEN 0 THEN 'subject-tokens' WHEN 1 THEN 'exchanges' WHEN 2 THEN 'exchanges'
                WHEN 3 THEN 'management' ELSE 'template' END AS log,
            CASE kind WHEN 3 THEN 'UpdateUser' WHEN 4 THEN 'ReplaceOrganizationUserRoles' END AS operation,
            CASE WHEN kind < 3 THEN 'impersonation' || number / 5 END AS subject_token_id,
            CASE kind WHEN 3 THEN json_build_object('user_id', user_id)
                WHEN 4 THEN json_build_object('organization_id', organization_id, 'user_id', user_id)
                ELSE '{}'::json END AS ids
        FROM drawn
    )
    INSERT INTO audit_entries (tenant_id, occurred_at, id, log, epoch, sequence, key, operation, application_id,
        user_id, actor_id, organization_id, subject_token_id, entry)
    SELECT $1::text, at, 'entry' || number, log, 'bench', number, key, operation, application_id,
        CASE WHEN kind < 3 THEN user_id ELSE 'admin' || number % 20 END,
        CASE WHEN kind IN (1, 2) THEN actor_id END, CASE WHEN kind > 0 THEN organization_id END, subject_token_id,
        json_strip_nulls(json_build_object('id', 'entry' || number, 'occurredAt', at, 'tenantId', $1::text, 'log', log,
            'epoch', 'bench', 'sequence', number, 'key', key, 'operation', operation, 'applicationId', application_id,
            'userId', CASE WHEN kind < 3 THEN user_id ELSE 'admin' || number % 20 END,
            'actorId', CASE WHEN kind IN (1, 2) THEN actor_id END,
            'organizationId', CASE WHEN kind > 0 THEN organization_id END, 'subjectTokenId', subject_token_id,
            'context', CASE kind WHEN 0 THEN json_build_object('reason', 'The customer cannot see order ' || number,
                'ticketId', 'TCK-' || number) END,
            'requestId', md5(number::text), 'address', '203.0.113.7', 'userAgent', 'Mozilla/5.0 (X11; Linux x86_64)',
            'ids', ids, 'aggregates', json_build_array('user/' || user_id), 'aggregateCount', 1))::text
    FROM named
"""

FILTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "userId": {"userId": "user4711"},
    "userId of a quarter": {"userId": "user1"},
    "targetId": {"targetId": "user4711"},
    "targetId of a tenth": {"targetId": "user1"},
    "targetId, unknown": {"targetId": "unknown"},
    "actorId": {"actorId": "actor7"},
    "applicationId": {"applicationId": "app7"},
    "applicationId of a quarter": {"applicationId": "app1"},
    "organizationId": {"organizationId": "org7"},
    "subjectTokenId": {"subjectTokenId": "impersonation4711"},
    "operation": {"operation": "UpdateUser"},
    "logKey": {"logKey": "token.exchange.taken"},
    "userId and logKey": {"userId": "user4711", "logKey": "subject-token.issued"},
    "organizationId and operation": {"organizationId": "org7", "operation": "ReplaceOrganizationUserRoles"},
}

REGISTER: Final[Mapping[str, Mapping[str, str]]] = {
    "none": {},
    "active": {"active": "true"},
    "active, over": {"active": "false"},
    "userId": {"userId": "user4711"},
    "userId of a quarter": {"userId": "user1"},
    "userId who writes only": {"userId": "admin3"},
    "userId, active": {"userId": "user4711", "active": "true"},
    "actorId": {"actorId": "actor7"},
    "clientId": {"clientId": "app7"},
    "organizationId": {"organizationId": "org7"},
    "clientId and actorId": {"clientId": "app1", "actorId": "actor7"},
}
"""``/oidc/me/impersonations`` is ``userId``."""


def lines(database_url: str, url: str, access_token: str, *, entries: int) -> Iterator[str]:
    """Store entries over a year, and measure the first page and one in the middle of the year by every filter."""
    begun_at = time.monotonic()
    now = now_ms()
    begins_at = _months(now)[1].begins_at
    asyncio.run(add_entries(database_url, entries, ends_at=now))
    yield f"{entries:,} entries stored with SQL in {time.monotonic() - begun_at:,.0f} s\n"
    yield f"{'filter':30} {'entries':>7} {'p50 ms':>7} {'p95 ms':>7} {'middle p50':>10} {'p95':>7}"
    headers = {"Authorization": f"Bearer {access_token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        for name, given in FILTERS.items():
            count, first = _measured(http, "/api/logs", given)
            _, middle = _measured(http, "/api/logs", {**given, "end_time": str((begins_at + now) // 2)})
            missed = "" if max(first[1], middle[1]) < _TARGET_MS else f"  over {_TARGET_MS} ms"
            yield f"{name:30} {count:7} {first[0]:7.1f} {first[1]:7.1f} {middle[0]:10.1f} {middle[1]:7.1f}{missed}"
        yield f"\n{'impersonations':30} {'found':>7} {'p50 ms':>7} {'p95 ms':>7}"
        for name, given in REGISTER.items():
            count, first = _measured(http, "/api/impersonations", given)
            yield f"{name:30} {count:7} {first[0]:7.1f} {first[1]:7.1f}"


def _months(now: int) -> Sequence[Month]:
    """Return the months of the last year and the current one."""
    current = Month.of(now)
    ago = [divmod(current.year * 12 + current.month - 1 - back, 12) for back in range(_MONTHS, -1, -1)]
    return [Month(year, month + 1) for year, month in ago]


async def add_entries(database_url: str, entries: int, *, ends_at: int) -> None:
    """Store entries of the year before a time."""
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""), command_timeout=600)
    months = _months(ends_at)
    await create_partitions(connection, months)
    begins_at = months[1].begins_at
    for first in range(0, entries, _AT_ONCE):
        last = min(first + _AT_ONCE, entries) - 1
        await connection.execute(_ADD, _TENANT, begins_at, ends_at - begins_at, entries, first, last)
    for table in ("audit_entries", "audit_parties", "audit_targets"):
        await connection.execute(f"VACUUM ANALYZE {table}")
    await connection.close()


def _measured(http: httpx.Client, path: str, given: Mapping[str, str]) -> tuple[int, tuple[float, float]]:
    """Return the number of entries of a page, and the median and the 95th percentile of its times in milliseconds."""
    times = []
    count = 0
    for _ in range(_ROUNDS):
        begun_at = time.perf_counter()
        answer = http.get(path, params={"page_size": str(_PAGE), **given})
        times.append((time.perf_counter() - begun_at) * 1000)
        count = len(answer.raise_for_status().json())
    times.sort()
    return count, (times[len(times) // 2], times[int(len(times) * 0.95)])
