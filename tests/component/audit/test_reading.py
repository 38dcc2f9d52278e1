"""The audit trail is read with filters, in cursor pages and as lines of JSON."""

import asyncio
import csv
import io
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import combinations_with_replacement
from typing import Any

import asyncpg
import httpx2 as httpx
import msgspec
import nats
import pytest
from sqlalchemy import Select
from sqlalchemy.dialects import postgresql

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.wire.audit import BEGINNINGS, ISSUED, TAKEN, AuditContext, AuditEntry, audit_subject
from identity_common.words import prefix_query
from management_service.app import create_app
from management_service.audit.reading.store import TrailFilters, _found, _walks, of_person, ticket_statement
from management_service.audit.storing.partitions import create_partitions, months_ahead
from management_service.commands import restored
from tests.component.audit.test_erasure import scans
from tests.support.management_api import Management, client_of, issues, refusal, running
from tests.support.waiting import WAIT_S

NOON = now_ms() - 10 * 86_400_000
HOUR = 3_600_000
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'audit_entries'::regclass"
USER, ACTOR, OTHER = "user", "actor", "other"
TICKET = AuditContext(ticket_id="TCK-2077")


def entry(number: int, **changed: Any) -> AuditEntry:
    values = {"log": "management", "key": "management.user.update", "occurred_at": NOON + number // 2, **changed}
    return AuditEntry(id=f"entry-{number}", tenant_id="", sequence=number, **values)


ENTRIES = (
    entry(1, user_id=OTHER, ids={"user_id": USER}, operation="UpdateUser", application_id="console"),
    entry(2, user_id=USER, ids={"user_id": USER}, operation="UpdateUserPassword", application_id="portal"),
    entry(3, user_id=USER, key=ISSUED, subject_token_id="one", application_id="desk", context=TICKET),
    entry(4, user_id=USER, key=TAKEN, subject_token_id="one", actor_id=ACTOR, organization_id="org"),
    entry(5, user_id=OTHER, operation="UpdateOrganization", ids={"organization_id": "org", "user_id": "second"}),
    entry(6, user_id=OTHER, key=TAKEN, subject_token_id="two", actor_id=USER),
    entry(
        7,
        application_id="console",
        operation="CreateUser",
        aggregates=("user/created", "role/one"),
        given={"roleIds": ("given", "too")},
    ),
    entry(8, application_id="desk", operation="EndImpersonation", ids={"impersonation_id": "one"}),
    entry(9, user_id=OTHER, key=ISSUED, subject_token_id="three", requested_by="kim", application_id="console"),
    entry(10, user_id="kim", key=ISSUED, subject_token_id="four", requested_by="kim", application_id="console"),
    entry(11, key="token.exchange.refused", outcome="refused", application_id="portal"),
)


@pytest.fixture(scope="module")
async def own(management: Management) -> AsyncIterator[Management]:
    """A tenant with these entries and no others."""
    async with Management(management.addresses, management.issuer) as own:
        client = await nats.connect(own.settings.nats_url, inbox_prefix="_INBOX_management")
        for each in entries_of(own):
            await client.jetstream().publish(audit_subject("management", own.tenant_id), msgspec.json.encode(each))
        await client.close()
        await read(own.client, len(ENTRIES))
        yield own


def entries_of(own: Management) -> list[AuditEntry]:
    return [msgspec.structs.replace(each, tenant_id=own.tenant_id) for each in ENTRIES]


async def ids(client: httpx.AsyncClient, **params: Any) -> list[str]:
    answer = await client.get("/api/logs", params=params)
    assert answer.status_code == 200, answer.text
    assert "Link" not in answer.headers
    return [each["id"].removeprefix("entry-") for each in answer.json()]


async def test_each_filter_selects_what_it_says_newest_first(own: Management) -> None:
    client = own.client
    found = {
        name: await ids(client, **params)
        for name, params in {
            "none": {},
            "user": {"userId": USER},
            "created user": {"userId": "created"},
            "requesting user": {"userId": "kim"},
            "subject tokens of the requesting user": {"userId": "kim", "logKey": ISSUED},
            "exchanges of the requesting user": {"userId": "kim", "logKey": TAKEN},
            "target of the requesting user": {"userId": "kim", "targetId": "org"},
            "requesting target": {"targetId": "kim"},
            "target": {"targetId": USER},
            "created target": {"targetId": "one"},
            "given": {"targetId": "given"},
            "inner target": {"targetId": "second", "end_time": NOON + 2},
            "targets before": {"targetId": USER, "start_time": NOON + 1},
            "target and user": {"targetId": USER, "userId": OTHER},
            "target and target": {"targetId": "org", "userId": "second"},
            "target and application": {"targetId": "one", "applicationId": "desk"},
            "actor": {"actorId": ACTOR},
            "application": {"applicationId": "console"},
            "organization": {"organizationId": "org"},
            "subject token": {"subjectTokenId": "one"},
            "operation": {"operation": "UpdateUser"},
            "key": {"logKey": "token.exchange.taken"},
            "from": {"start_time": NOON + 3},
            "until": {"end_time": NOON + 1},
            "both": {"userId": USER, "logKey": "token.exchange.taken", "start_time": NOON, "end_time": NOON + 2},
            "nothing": {"userId": "unknown"},
            "person": {"person": USER},
            "acting person": {"person": ACTOR},
            "person and requester": {"person": "kim"},
            "person and key": {"person": USER, "logKey": TAKEN},
            "ends about a person": {"person": USER, "operation": "EndImpersonation"},
            "person and target": {"person": USER, "targetId": "one"},
            "person and user": {"person": USER, "userId": OTHER},
            "person and organization": {"person": ACTOR, "organizationId": "org"},
            "person as of a time": {"person": USER, "start_time": NOON + 2, "end_time": NOON + 3},
            "any way of an application": {"application": "desk"},
            "any way of an organization": {"organization": "org"},
            "application and organization": {"application": "desk", "organization": "org"},
            "ticket": {"ticketId": "tck-2077"},
            "ticket and key": {"ticketId": "TCK-2077", "logKey": TAKEN},
            "ticket and person": {"ticketId": "TCK-2077", "person": ACTOR},
            "ticket as of a time": {"ticketId": "TCK-2077", "start_time": NOON + 2, "end_time": NOON + 3},
            "ticket and impersonation": {"ticketId": "TCK-2077", "subjectTokenId": "two"},
            "refused": {"outcome": "refused"},
            "unknown": {"outcome": "unknown"},
            "succeeded for an application": {"outcome": "success", "application": "portal"},
        }.items()
    }
    assert found == {
        "none": ["11", "10", "9", "8", "7", "6", "5", "4", "3", "2", "1"],
        "user": ["4", "3", "2", "1"],
        "created user": ["7"],
        "requesting user": ["10", "9"],
        "subject tokens of the requesting user": ["10", "9"],
        "exchanges of the requesting user": [],
        "target of the requesting user": [],
        "requesting target": [],
        "target": ["2", "1"],
        "created target": ["8", "7"],
        "given": ["7"],
        "inner target": ["5"],
        "targets before": ["2"],
        "target and user": ["1"],
        "target and target": ["5"],
        "target and application": ["8"],
        "actor": ["4"],
        "application": ["10", "9", "7", "1"],
        "organization": ["5", "4"],
        "subject token": ["8", "4", "3"],
        "operation": ["1"],
        "key": ["6", "4"],
        "from": ["11", "10", "9", "8", "7", "6"],
        "until": ["3", "2", "1"],
        "both": ["4"],
        "nothing": [],
        "person": ["8", "6", "4", "3", "2", "1"],
        "acting person": ["8", "4", "3"],
        "person and requester": ["10", "9"],
        "person and key": ["6", "4"],
        "ends about a person": ["8"],
        "person and target": ["8"],
        "person and user": ["6", "1"],
        "person and organization": ["4"],
        "person as of a time": ["6", "4"],
        "any way of an application": ["8", "3"],
        "any way of an organization": ["5", "4"],
        "application and organization": [],
        "ticket": ["8", "4", "3"],
        "ticket and key": ["4"],
        "ticket and person": ["8", "4", "3"],
        "ticket as of a time": ["4"],
        "ticket and impersonation": [],
        "refused": ["11"],
        "unknown": [],
        "succeeded for an application": ["2"],
    }


async def test_pages_follow_each_other_without_repeating_or_leaving_out_an_entry(own: Management) -> None:
    for params, expected in (
        ({}, "11 10 9 8 7 6 5 4 3 2 1"),
        ({"userId": USER}, "4 3 2 1"),
        ({"userId": "kim"}, "10 9"),
        ({"person": USER}, "8 6 4 3 2 1"),
        ({"targetId": "one"}, "8 7"),
        ({"ticketId": "TCK-2077"}, "8 4 3"),
        ({"outcome": "success"}, "10 9 8 7 6 5 4 3 2 1"),
    ):
        found, address = [], httpx.URL("/api/logs", params={**params, "page_size": "2"})
        while True:
            answer = await own.client.get(address)
            found += [each["id"].removeprefix("entry-") for each in answer.json()]
            if "next" not in answer.links:
                break
            address = httpx.URL(answer.links["next"]["url"])
            assert address.path == "/api/logs"
            address = httpx.URL("/api/logs", params=address.params)
        assert " ".join(found) == expected


MANY, PAGE = 5_000, 20
FEW = 5
"""To find one: in the index, in the table, in the result, and dead rows of it."""
WRITES = """
    INSERT INTO audit_entries
        (tenant_id, occurred_at, id, log, epoch, sequence, key, user_id, application_id, organization_id, entry)
    SELECT $1, $2::bigint + number, 'write', 'management', 'many', number, 'k', 'ann', 'app', 'org',
        '{"ids": {"user_id": "ann", "organization_id": "org"}}'
    FROM generate_series(1, $3) AS number
"""


REQUESTED = """
    INSERT INTO audit_entries
        (tenant_id, occurred_at, id, log, epoch, sequence, key, user_id, requested_by, subject_token_id, entry)
    SELECT $1, $2::bigint + number, 'issued', 'subject-tokens', 'many', number, 'subject-token.issued', 'customer',
        'ann', number, '{"context": {"ticketId": "TCK-' || number || '"}}'
    FROM generate_series(1, $3) AS number
"""


@pytest.fixture(scope="module")
async def many_writes(management: Management) -> str:
    """Return a tenant whose trail has many writes by one user, application and organization to themselves.

    Another tenant has as many impersonations. The index of their words is one of all tenants: while it is small, to
    read it as a whole is the cheapest plan.
    """
    tenant_id = f"many-{new_id()}"
    await create_partitions(management.database, months_ahead(now_ms()))
    await management.database.execute(WRITES, tenant_id, now_ms() - MANY, MANY)
    await management.database.execute(REQUESTED, f"others-{tenant_id}", now_ms() - MANY, MANY)
    await management.database.execute("VACUUM (ANALYZE) audit_entries, audit_targets")
    return tenant_id


@pytest.mark.heavy
@pytest.mark.servers
@pytest.mark.parametrize("party", [{"subject_id": "ann"}, {"application_id": "app"}, {"organization_id": "org"}])
async def test_the_impersonations_of_a_party_are_found_without_reading_its_writes(
    management: Management, many_writes: str, party: dict[str, str]
) -> None:
    for key in BEGINNINGS:
        (walk,) = _walks(many_writes, TrailFilters(key=key, **party), None)
        assert await entries_read(management.database, walk) == 0


@pytest.mark.heavy
@pytest.mark.servers
async def test_the_subject_tokens_requested_for_a_user_are_found_without_reading_anything_else(
    management: Management, many_writes: str
) -> None:
    database = management.database
    for key in BEGINNINGS:
        walks = _walks(many_writes, TrailFilters(key=key, user_id="ann"), None)
        assert [await entries_read(database, walk) for walk in walks] == [0] * len(walks)
    requested = database.transaction()
    await requested.start()
    try:
        await database.execute(REQUESTED, many_writes, now_ms() - MANY, MANY)
        await database.execute("ANALYZE audit_entries")
        for key, expected in ((ISSUED, [0, PAGE]), (TAKEN, [0])):
            walks = _walks(many_writes, TrailFilters(key=key, user_id="ann"), None)
            assert [await entries_read(database, walk) for walk in walks] == expected
    finally:
        await requested.rollback()
        await database.execute("VACUUM (ANALYZE) audit_entries")  # a plan with a bitmap reads dead rows, too


@pytest.mark.heavy
@pytest.mark.servers
async def test_the_entries_of_a_person_are_found_without_reading_those_with_other_keys(
    management: Management, many_writes: str
) -> None:
    """A page looks at no more than it shows, in each of the ways in which entries concern the person."""
    for key, most in ((None, PAGE), ("rare", 0), (ISSUED, 0)):
        filters = TrailFilters(key=key, concerning=(of_person("ann"),))
        for newest in (True, False):
            walks = _walks(many_writes, filters, None, newest_first=newest)
            read = [await entries_read(management.database, walk) for walk in walks]
            if key == "rare":  # targets have no key: their entries are looked at one by one
                del read[1]
            assert max(read) <= most, (key, newest, read)
    page = _found(many_writes, TrailFilters(concerning=(of_person("ann"),)), None, limit=PAGE, newest_first=True)
    # Each of two walks reads one more, to see that it has all of the last time.
    assert looked_at(await plan_of(management.database, page)) <= 3 * PAGE + 2


@pytest.mark.heavy
@pytest.mark.servers
async def test_the_impersonations_of_a_ticket_are_found_without_reading_the_others(
    management: Management, many_writes: str
) -> None:
    other, query = f"others-{many_writes}", prefix_query(f"TCK-{MANY - 1}")
    page = _found(other, TrailFilters(key=ISSUED, context_query=query), None, limit=PAGE, newest_first=True)
    assert looked_at(await plan_of(management.database, page)) <= FEW
    page = _found(other, TrailFilters(key=ISSUED, ticket="tck-7"), None, limit=PAGE, newest_first=True)
    assert looked_at(await plan_of(management.database, page)) <= FEW


async def test_entries_of_an_outcome_and_of_a_ticket_are_found_without_reading_any_others(
    management: Management, many_writes: str
) -> None:
    database, other = management.database, f"others-{many_writes}"
    for outcome in ("refused", "unknown"):
        (walk,) = _walks(many_writes, TrailFilters(outcome=outcome), None)
        assert await entries_read(database, walk) == 0
    assert looked_at(await plan_of(database, ticket_statement(other, "tck-7", limit=2))) <= FEW
    page = _found(other, TrailFilters(impersonations=["7"]), None, limit=PAGE, newest_first=True)
    assert looked_at(await plan_of(database, page)) <= FEW


async def entries_read(database: asyncpg.Connection, walk: Select[Any]) -> int:
    """Return how many entries and targets a page looks at."""
    return looked_at(await plan_of(database, walk.limit(PAGE)))


async def plan_of(database: asyncpg.Connection, statement: Select[Any]) -> dict[str, Any]:
    """Return how a statement is carried out where every partition is long; those of other tests are short."""
    text = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
    async with database.transaction():
        await database.execute("SET LOCAL enable_seqscan = off")
        (plan,) = json.loads(await database.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
    return dict(plan["Plan"])


def looked_at(plan: dict[str, Any]) -> int:
    rows = (
        (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans(plan)
    )
    return round(sum(rows))


async def test_one_entry_and_none(own: Management) -> None:
    answer = await own.client.get("/api/logs/entry-4")
    assert answer.json() == msgspec.to_builtins(entries_of(own)[3])
    end = (await own.client.get("/api/logs/entry-8")).json()
    assert end.pop("impersonation") == {"userId": USER, "actorId": ACTOR}
    assert end == msgspec.to_builtins(entries_of(own)[7])
    assert answer.headers["ETag"]
    assert refusal(await own.client.get("/api/logs/nothing")) == (404, "entity.not_exists_with_id")


async def test_the_export_has_one_entry_a_line_oldest_first(own: Management) -> None:
    answer = await own.client.get("/api/logs/export")
    assert answer.headers["Content-Type"].startswith("application/x-ndjson")
    assert [msgspec.json.decode(line, type=AuditEntry) for line in answer.content.splitlines()] == entries_of(own)
    part = await own.client.get("/api/logs/export", params={"start_time": NOON + 3, "end_time": NOON + 3})
    assert [msgspec.json.decode(line)["id"] for line in part.content.splitlines()] == ["entry-6", "entry-7"]


async def test_the_export_honours_every_filter_alone_and_with_each_other(own: Management) -> None:
    given: dict[str, str | int] = {
        "person": USER,
        "userId": USER,
        "targetId": "one",
        "actorId": ACTOR,
        "applicationId": "desk",
        "organizationId": "org",
        "subjectTokenId": "one",
        "operation": "EndImpersonation",
        "logKey": TAKEN,
        "application": "desk",
        "organization": "org",
        "ticketId": "TCK-2077",
        "outcome": "success",
        "start_time": NOON + 1,
        "end_time": NOON + 3,
    }
    for pair in combinations_with_replacement(given, 2):
        params = {name: given[name] for name in pair}
        listed = await own.client.get("/api/logs", params=params)
        exported = await own.client.get("/api/logs/export", params=params)
        lines = [msgspec.json.decode(line) for line in exported.content.splitlines()]
        assert all(line.pop("leaf") for line in lines)
        stored = [{name: each[name] for name in each if name != "impersonation"} for each in listed.json()[::-1]]
        assert lines == stored, pair


async def test_many_exports_at_once_leave_connections_for_others_and_are_whole(own: Management) -> None:
    count = own.settings.database_connections + 2
    async with own.database.transaction():
        await own.database.execute("LOCK TABLE audit_entries IN ACCESS EXCLUSIVE MODE")
        exports = [asyncio.create_task(own.client.get("/api/logs/export")) for _ in range(count)]
        async with asyncio.timeout(WAIT_S):
            while await own.database.fetchval(WAITING) < 2:
                pass
        for _ in range(20):
            assert (await own.client.get("/api/users")).status_code == 200
    assert [len((await each).content.splitlines()) for each in exports] == [len(ENTRIES)] * count


async def test_the_export_is_a_table_too(own: Management) -> None:
    answer = await own.client.get("/api/logs/export", params={"format": "csv", "person": USER})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.content.count(b"\r\n") == 7
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == [f"entry-{number}" for number in (1, 2, 3, 4, 6, 8)]
    assert {name: value for name, value in rows[3].items() if value not in {"", "0"}} == {
        "time": datetime.fromtimestamp((NOON + 2) / 1000, UTC).isoformat(timespec="milliseconds"),
        "key": TAKEN,
        "outcome": "success",
        "userId": USER,
        "actorId": ACTOR,
        "organizationId": "org",
        "subjectTokenId": "one",
        "count": "1",
        "id": "entry-4",
        "log": "management",
        "sequence": "4",
    }


async def figures(client: httpx.AsyncClient, **params: Any) -> list[tuple[int, str, int]]:
    answer = await client.get("/api/logs/figures", params=params)
    assert answer.status_code == 200, answer.text
    return [(each["hour"], each["key"], each["entries"]) for each in answer.json()]


async def test_figures_count_the_entries_of_each_key_by_hour(own: Management) -> None:
    counted = Counter((each.occurred_at // HOUR * HOUR, each.key) for each in ENTRIES)
    expected = sorted((hour, key, count) for (hour, key), count in counted.items())
    assert await figures(own.client, start_time=NOON, end_time=NOON + 4) == expected
    assert await figures(own.client, end_time=NOON + 4) == expected
    assert await figures(own.client, start_time=NOON, end_time=NOON) == [each for each in expected if each[0] <= NOON]
    assert await figures(own.client, end_time=NOON - HOUR) == await figures(own.client, end_time=0) == []
    assert await figures(own.client) == []  # of the last day


async def test_figures_of_a_malformed_or_too_long_time_are_refused(own: Management) -> None:
    for query in ("start_time=5&end_time=4", f"end_time={NOON}&start_time={NOON - 31 * 24 * HOUR - 1}"):
        assert issues(await own.client.get(f"/api/logs/figures?{query}")) == {"start_time"}
    for query in ("start_time=x", "start_time=-1", "end_time=1&end_time=2", "page_size=3", "end_time=" + "9" * 30):
        assert (await own.client.get(f"/api/logs/figures?{query}")).status_code == 400


@pytest.mark.heavy
async def test_a_restored_source_repeats_no_number_and_leaves_a_gap(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await own.created("users")
        (before,) = await read(own.client, 1, logKey="management.user.create")
    await asyncio.to_thread(restored, own.settings)
    app = create_app(own.settings)
    async with running(app), client_of(app, own.token()) as client:
        assert (await client.post("/api/users", json={})).is_success
        after, same = await read(client, 2, logKey="management.user.create")
        (gap,) = await read(client, 1, logKey="audit.gap")
    assert same == before
    assert gap["gap"] == {"from": before["sequence"] + 1, "to": after["sequence"] - 1}


async def read(client: httpx.AsyncClient, count: int, **params: str) -> list[dict[str, Any]]:
    """Return the entries once there are so many."""
    async with asyncio.timeout(WAIT_S):
        while len(found := (await client.get("/api/logs", params=params)).json()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return list(found)


async def test_wrong_parameters_are_named_and_the_scope_all_is_required(own: Management) -> None:
    wrong = "userid=x&start_time=now&end_time=-1&actorId=a&actorId=b&operation=&logKey=%00&outcome=failure"
    answer = await own.client.get(f"/api/logs?{wrong}")
    assert issues(answer) == {"userid", "start_time", "end_time", "actorId", "operation", "logKey", "outcome"}
    assert refusal(await own.client.get("/api/logs?page_size=0")) == (400, "guard.invalid_pagination")
    for after in ("x", "1", "1.", "-1.2", "1.2.3"):
        assert issues(await own.client.get("/api/logs", params={"after": after})) == {"after"}
    for query, path in (("format=xml", "format"), ("format=csv&format=csv", "format"), ("page_size=3", "page_size")):
        assert issues(await own.client.get(f"/api/logs/export?{query}")) == {path}
    async with own.client_with(own.token(scope="subject-tokens")) as narrow:
        for path in ("logs", "logs/export", "logs/entry-1"):
            assert (await narrow.get(f"/api/{path}")).status_code == 403
