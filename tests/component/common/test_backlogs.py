"""The metrics of what waits for the bus, and of what the audit trail has not stored yet."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import nats
import pytest
from nats.js import JetStreamContext
from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.bus.streams import MAIL_STREAM, ensure_stream
from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.mail_backlog import MailBacklog
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import Samples
from identity_common.wire.audit import AuditEntry, AuditLog, audit_subject
from identity_common.wire.mail import mail_subject
from management_service.audit.storing.lag import measure_lag
from management_service.audit.storing.stream import stream_created
from tests.support.management_api import Management

A_MINUTE_MS = 60_000


class Measured:
    """The metrics of a tenant whose logs no relay reads and no trail stores."""

    def __init__(self, management: Management, jetstream: JetStreamContext) -> None:
        settings = management.settings
        self.tenant_id = f"t{new_id()}"
        self.jetstream = jetstream
        self.database = management.database
        self.engine = create_database_engine(settings.database_url, service="tests", pool_size=2)
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.bus = Bus(settings.nats_url, service="management")
        self.samples, self.registry, self.now = Samples(), CollectorRegistry(), now_ms()
        changed: Any = {"tenant_id": self.tenant_id, "clock": lambda: self.now}
        backlog = AuditBacklog(self.registry, self.samples, **changed)
        backlog.measure_outbox("management", self.engine)
        backlog.measure_stream("subject-tokens", self.commands, limit=20)
        measure_outbox(self.registry, self.samples, self.engine, **changed)
        mail = MailBacklog(self.registry, self.samples, **changed)
        mail.measure_outbox(self.engine)
        mail.measure_stream(self.bus)
        measure_lag(self.registry, self.samples, self.engine, self.bus, **changed)

    def entry(self, log: AuditLog) -> AuditEntry:
        return AuditEntry(id=new_id(), tenant_id=self.tenant_id, log=log, key="x", occurred_at=self.now)

    async def scraped(self, name: str, **labels: str) -> float:
        await self.samples.take()
        value = self.registry.get_sample_value(f"stead_{name}", labels)
        assert value is not None
        return value

    async def waiting(self, log: AuditLog) -> float:
        return await self.scraped("audit_backlog_entries", log=log)

    async def oldest_s(self, log: AuditLog) -> float:
        return await self.scraped("audit_backlog_oldest_seconds", log=log)


@pytest.fixture
async def measured(management: Management) -> AsyncIterator[Measured]:
    async with contextlib.AsyncExitStack() as stack:
        client = await nats.connect(management.settings.nats_url, inbox_prefix="_INBOX_management")
        stack.push_async_callback(client.close)
        measured = Measured(management, client.jetstream())
        stack.push_async_callback(measured.engine.dispose)
        stack.push_async_callback(measured.redis.aclose)
        measured.bus.start()
        stack.push_async_callback(measured.bus.stop)
        await measured.bus.connected()
        yield measured


@pytest.mark.servers
async def test_an_outbox_that_is_not_relayed_is_seen_to_grow(measured: Measured) -> None:
    log: AuditLog = "management"
    assert (await measured.waiting(log), await measured.oldest_s(log)) == (0, 0)
    text = msgspec.json.encode(measured.entry(log)).decode()
    for sequence in (1, 2, 3):
        row = (measured.tenant_id, sequence, sequence, text)
        await measured.database.execute("INSERT INTO audit_outbox VALUES ($1, $2, $3, $4)", *row)
    measured.now += A_MINUTE_MS
    assert (await measured.waiting(log), await measured.oldest_s(log)) == (3, 60)
    await measured.database.execute("DELETE FROM audit_outbox WHERE tenant_id = $1", measured.tenant_id)
    assert (await measured.waiting(log), await measured.oldest_s(log)) == (0, 0)


@pytest.mark.servers
async def test_events_that_are_not_relayed_are_seen_to_wait(measured: Measured) -> None:
    async def waiting() -> tuple[float, float]:
        return await measured.scraped("outbox_events"), await measured.scraped("outbox_oldest_seconds")

    assert await waiting() == (0, 0)
    for revision in (1, 2, 3):
        row = (measured.tenant_id, revision, "subject", "type", "aggregate", measured.now + revision * A_MINUTE_MS, "")
        await measured.database.execute("INSERT INTO outbox VALUES ($1, $2, $3, $4, $5, $6, $7)", *row)
    measured.now += 4 * A_MINUTE_MS
    assert await waiting() == (3, 180)
    await measured.database.execute("DELETE FROM outbox WHERE tenant_id = $1", measured.tenant_id)
    assert await waiting() == (0, 0)


@pytest.mark.servers
async def test_mail_that_is_neither_relayed_nor_sent_is_seen_to_wait(measured: Measured) -> None:
    async def waiting(place: str) -> tuple[float, int]:
        oldest = await measured.scraped("mail_oldest_seconds", place=place)
        return await measured.scraped("mail_waiting", place=place), round(oldest / 60)

    await ensure_stream(measured.bus, MAIL_STREAM)
    assert (await waiting("outbox"), await waiting("stream")) == ((0, 0), (0, 0))
    for number in (1, 2, 3):
        row = (measured.tenant_id, str(number), b"", measured.now)
        await measured.database.execute("INSERT INTO mail_outbox VALUES ($1, $2, $3, $4)", *row)
        await measured.jetstream.publish(mail_subject("management", measured.tenant_id), b"")
    measured.now += A_MINUTE_MS
    assert (await waiting("outbox"), await waiting("stream")) == ((3, 1), (3, 1))
    await measured.database.execute("DELETE FROM mail_outbox WHERE tenant_id = $1", measured.tenant_id)
    assert await waiting("outbox") == (0, 0)


@pytest.mark.heavy
async def test_counting_what_waits_is_bounded(measured: Measured) -> None:
    for statement in (
        "INSERT INTO outbox SELECT $1, n, '', '', '', $2::bigint + n, '' FROM generate_series(1, 100001) AS n",
        "INSERT INTO audit_outbox SELECT $1, n, n, json_build_object('occurredAt', $2::bigint + n)::text"
        " FROM generate_series(1, 100001) AS n",
    ):
        await measured.database.execute(statement, measured.tenant_id, measured.now)
    measured.now += A_MINUTE_MS + 1
    assert (await measured.waiting("management"), await measured.oldest_s("management")) == (100_000, 60)
    assert await measured.scraped("outbox_events") == 100_000
    assert await measured.scraped("outbox_oldest_seconds") == 60
    for table in ("outbox", "audit_outbox"):
        await measured.database.execute(f"DELETE FROM {table} WHERE tenant_id = $1", measured.tenant_id)


@pytest.mark.servers
@pytest.mark.parametrize("in_batches", [False, True])
async def test_a_log_in_redis_is_seen_to_grow_towards_its_limit(measured: Measured, in_batches: bool) -> None:
    log: AuditLog = "subject-tokens"
    assert (await measured.waiting(log), await measured.oldest_s(log)) == (0, 0)
    keys = AuditStreamKeys.of(log, measured.tenant_id)
    stream = AuditStream(measured.commands, keys, backlog=20)
    if in_batches:
        await measured.commands.execute("HSET", keys.numbering, "batches_until", now_ms() // 1000 + 60)
    for _ in range(15):
        stream.append(measured.entry(log))
    await stream.flush()
    measured.now = now_ms() + A_MINUTE_MS
    assert await measured.waiting(log) == 10  # what need not be recorded is dropped at half of the limit
    assert await measured.scraped("audit_backlog_limit_entries", log=log) == 20
    assert await measured.oldest_s(log) >= 60
    assert len(await measured.commands.execute("XRANGE", keys.stream, "-", "+")) == (1 if in_batches else 10)
    await measured.commands.execute("DEL", *keys)
    assert (await measured.waiting(log), await measured.oldest_s(log)) == (0, 0)


@pytest.mark.servers
async def test_the_trail_is_behind_until_it_has_stored_everything_that_was_published(measured: Measured) -> None:
    created = await stream_created(measured.bus)

    async def store_up_to(position: int, *, stream: str = created) -> float:
        """Note a position as the ingestion does; return the lag."""
        await measured.database.execute(
            "INSERT INTO audit_positions (tenant_id, stream_created, position) VALUES ($1, $2, $3)"
            " ON CONFLICT (tenant_id) DO UPDATE SET stream_created = excluded.stream_created,"
            " position = excluded.position",
            *(measured.tenant_id, stream, position),
        )
        return await measured.scraped("audit_ingestion_lag_seconds")

    assert await measured.scraped("audit_ingestion_lag_seconds") == 0
    subject, data = audit_subject("management", measured.tenant_id), msgspec.json.encode(measured.entry("management"))
    first, second = [(await measured.jetstream.publish(subject, data)).seq for _ in range(2)]
    measured.now = now_ms() + A_MINUTE_MS
    assert await measured.scraped("audit_ingestion_lag_seconds") >= 60
    assert await store_up_to(first) >= 60
    assert await store_up_to(second) == 0
    assert await store_up_to(second, stream="an earlier one") >= 60
