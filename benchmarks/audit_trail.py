"""What the audit trail costs an exchange, how fast entries are stored, and what space they take."""

import asyncio
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

import asyncpg
import msgspec
import nats

from benchmarks.measure import Measurement, cpu_seconds
from identity_common.clock import now_ms
from identity_common.wire.audit import AuditEntry, audit_subject

_CONNECTIONS: Final = (1, 16, 64)
_WARM_UP_PASSES: Final = 500
_SHARE: Final = 0.9
_TENANT: Final = "default"
_ENTRIES_A_MESSAGE: Final = 500
_ENTRIES_A_SECOND: Final = 2_000
_IN_FLIGHT: Final = 20
_TIMEOUT_S: Final = 300
_SIZE: Final = """
    SELECT sum(pg_relation_size(oid)) FILTER (WHERE relkind = 'r')::bigint AS table,
        sum(pg_relation_size(oid)) FILTER (WHERE relkind = 'i' AND relname !~ 'pkey')::bigint AS indexes
    FROM pg_class WHERE relname ~ '^audit_entries_[0-9]'
"""

Measure = Callable[[int, int], Measurement]
"""Measures the exchange with this many connections and passes."""


def costs(with_trail: Measure, without: Measure, *, rounds: int, seconds: float) -> Iterator[str]:
    """Measure an exchange at the service, and at one that records no entries, in every round.

    Args:
        with_trail: Measures the service.
        without: Measures the one that records none.
        rounds: How often.
        seconds: Approximate length of each measurement.
    """
    for connections in _CONNECTIONS:
        found: dict[str, list[Measurement]] = {"with": [], "without": []}
        measures = {"with": with_trail, "without": without}
        rates = {name: measure(connections, _WARM_UP_PASSES).rate for name, measure in measures.items()}
        for _ in range(rounds):
            for name, measure in measures.items():
                found[name].append(measure(connections, max(connections, int(rates[name] * seconds))))
        share = median(one.rate / other.rate for one, other in zip(found["with"], found["without"], strict=True))
        for name, measurements in found.items():
            yield (
                f"{connections} connections, {name} the trail: {median(each.rate for each in measurements):,.0f} req/s,"
                f" p50 {median(each.p50_ms for each in measurements):.2f} ms,"
                f" {median(each.own_cpu_us for each in measurements):.0f} µs of our own CPU,"
                f" {median(each.store_cpu_us for each in measurements):.0f} µs of the stores"
            )
        verdict = "met   " if share >= _SHARE else "MISSED"
        yield f"{verdict}  {share:.0%} of the throughput without it (target: {_SHARE:.0%})"


def storing(token_nats_url: str, database_url: str, *, management: int, postgres: int, entries: int) -> Iterator[str]:
    """Publish entries of exchanges as fast as the bus takes them, until management-service has stored all of them.

    Args:
        token_nats_url: Of the bus, with the user of token-service.
        database_url: Of management-service.
        management: Process id of management-service.
        postgres: Process id of PostgreSQL.
        entries: How many.
    """
    size = asyncio.run(_size(database_url))
    own, store = cpu_seconds([management]), cpu_seconds([postgres])
    begun_at = time.monotonic()
    asyncio.run(_stored(token_nats_url, database_url, entries))
    wall_s = time.monotonic() - begun_at
    own_us = (cpu_seconds([management]) - own) / entries * 1e6
    store_us = (cpu_seconds([postgres]) - store) / entries * 1e6
    a_second = 1e6 / (own_us + store_us)
    table, indexes = (
        (after - before) / entries for before, after in zip(size, asyncio.run(_size(database_url)), strict=True)
    )
    verdict = "met   " if a_second >= _ENTRIES_A_SECOND else "MISSED"
    yield f"{entries:,} entries stored in {wall_s:.1f} s: {entries / wall_s:,.0f} a second"
    yield f"CPU time of an entry: {own_us:.0f} µs of management-service, {store_us:.0f} µs of PostgreSQL"
    yield f"{verdict}  {a_second:,.0f} entries a second on one core (target: {_ENTRIES_A_SECOND:,})"
    yield f"bytes of an entry: {table:.0f}, and {indexes:.0f} in secondary indexes"


async def _size(database_url: str) -> tuple[int, int]:
    """Return the size of the trail, and that of its indexes without the primary key."""
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    table, indexes = await connection.fetchrow(_SIZE)
    await connection.close()
    return table, indexes


async def _stored(nats_url: str, database_url: str, entries: int) -> None:
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    client = await nats.connect(nats_url, inbox_prefix="_INBOX_token")
    count = "SELECT count(*) FROM audit_entries WHERE tenant_id = $1 AND log = 'exchanges' AND epoch = $2"
    epoch = f"bench{time.time_ns()}"
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def publish(first: int) -> None:
        async with room:
            numbers = range(first, min(first + _ENTRIES_A_MESSAGE, entries + 1))
            message = msgspec.json.encode([_entry(number, epoch) for number in numbers])
            await client.jetstream().publish(audit_subject("exchanges", _TENANT), message)

    await asyncio.gather(*(publish(first) for first in range(1, entries + 1, _ENTRIES_A_MESSAGE)))
    async with asyncio.timeout(_TIMEOUT_S):
        while await connection.fetchval(count, _TENANT, epoch) < entries:  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.1)
    await client.close()
    await connection.close()


def _entry(number: int, epoch: str) -> AuditEntry:
    """Return an entry like those of an exchange that succeeded."""
    return AuditEntry(
        id=f"{epoch}-{number}",
        occurred_at=now_ms(),
        tenant_id=_TENANT,
        log="exchanges",
        epoch=epoch,
        sequence=number,
        key="token.exchange.succeeded",
        application_id=f"application{number % 100}",
        user_id=f"user{number % 10_000}",
        actor_id=f"actor{number % 50}",
        subject_token_id=f"impersonation{number}",
        resource="https://orders.example.com/api",
        scope="read:orders write:orders",
        issued_token_id=f"impersonation{number}.{number:032x}",
        expires_at=now_ms() + 3_600_000,
        request_id=f"{number:032x}",
        address="203.0.113.7",
        user_agent="python-httpx2/2.16",
    )
