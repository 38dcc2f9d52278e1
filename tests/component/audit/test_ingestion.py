"""management-service stores the entries of the stream, each once, and what is missing between them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import nats
import pytest
from nats.js import JetStreamContext
from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.sealing import SealingKeys
from identity_common.telemetry.metrics import counter
from identity_common.wire.audit import AuditContext, AuditEntry, AuditLog, audit_subject
from management_service.audit.storing.ingestion import AuditIngestion
from management_service.audit.storing.partitions import Month, create_partitions
from management_service.audit.tree.heads import Heads
from tests.support.captured_logs import captured_logs
from tests.support.management_api import Management
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.servers


class Trail:
    """A tenant that only this test writes to, and its ingestion."""

    def __init__(self, management: Management, jetstream: JetStreamContext) -> None:
        self.tenant_id = f"t{new_id()}"
        self._management = management
        self._jetstream = jetstream
        self.skipped = counter(CollectorRegistry(), "audit_entries_skipped", "Skipped.")

    def entry(self, sequence: int, **changed: Any) -> AuditEntry:
        values = {"log": "management", "key": "management.user.update", "occurred_at": now_ms(), **changed}
        return AuditEntry(id=new_id(), tenant_id=self.tenant_id, sequence=sequence, **values)

    async def publish(self, *entries: AuditEntry) -> None:
        for entry in entries:
            await self.publish_raw(entry.log, msgspec.json.encode(entry))

    async def publish_raw(self, log: AuditLog, text: bytes) -> None:
        # as an administrator of the bus could: management-service may publish only its own log
        await self._jetstream.publish(audit_subject(log, self.tenant_id), text)

    async def figure(self, hour: int, key: str, entries: int) -> None:
        query = "INSERT INTO audit_figures (tenant_id, hour, key, entries) VALUES ($1, $2, $3, $4)"
        await self._management.database.execute(query, self.tenant_id, hour, key, entries)

    async def ended(self, party: str, ended_at: int) -> None:
        query = "INSERT INTO party_ends (tenant_id, party, ended_at, cause) VALUES ($1, $2, $3, 'ended')"
        await self._management.database.execute(query, self.tenant_id, party, ended_at)

    async def fetch(self, query: str) -> list[Any]:
        return await self._management.database.fetch(query, self.tenant_id)

    async def stored(self, count: int) -> list[AuditEntry]:
        """Return the entries once there are so many, in the order of their numbers."""
        query = "SELECT entry FROM audit_entries WHERE tenant_id = $1 ORDER BY number"
        async with asyncio.timeout(WAIT_S):
            while True:
                rows = await self._management.database.fetch(query, self.tenant_id)
                if len(rows) >= count:
                    return [msgspec.json.decode(row["entry"], type=AuditEntry) for row in rows]
                await asyncio.sleep(0.05)

    def heads(self) -> Heads:
        sealing = SealingKeys(self._management.settings.audit_head_keys)
        refused = counter(CollectorRegistry(), "audit_heads_refused", "Refused.")
        return Heads(self.bus, sealing, issuer="https://id.test", tenant_id=self.tenant_id, refused=refused)

    async def ingest(self, *, database_url: str | None = None, **changed: Any) -> AuditIngestion:
        values = {"retention_days": 400, "skipped": self.skipped, **changed}
        url = database_url or self._management.settings.database_url
        ingestion = AuditIngestion(self.bus, url, self.heads(), tenant_id=self.tenant_id, **values)
        ingestion.loop.start()
        return ingestion

    async def __aenter__(self) -> Self:
        self.bus = Bus(self._management.settings.nats_url, service="management")
        self.bus.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.stop()


@pytest.fixture
async def trail(management: Management) -> AsyncIterator[Trail]:
    url = management.addresses.management_nats_url
    client = await nats.connect(url, inbox_prefix="_INBOX_management")
    async with Trail(management, client.jetstream()) as trail:
        yield trail
    await client.close()


def gaps(entries: list[AuditEntry]) -> list[tuple[str, Any]]:
    return [(each.epoch, msgspec.to_builtins(each.gap)) for each in entries if each.key == "audit.gap"]


async def test_a_write_of_the_api_is_in_the_trail(management: Management) -> None:
    user = (await management.created("users"))["id"]
    query = "SELECT key FROM audit_entries WHERE tenant_id = $1 AND entry LIKE $2"
    async with asyncio.timeout(WAIT_S):
        while (found := await management.database.fetch(query, management.tenant_id, f"%{user}%")) == []:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [row["key"] for row in found] == ["management.user.create"]


async def test_repeats_are_dropped_and_a_gap_is_recorded_once_and_may_be_filled_late(trail: Trail) -> None:
    first, second, late, fifth = (trail.entry(number) for number in (1, 2, 3, 5))
    ingestion = await trail.ingest()
    await trail.publish(first, first, second)
    assert await trail.stored(2) == [first, second]
    await ingestion.loop.stop()
    ingestion = await trail.ingest()
    await trail.publish(fifth, second, fifth, late)
    found = await trail.stored(5)
    await ingestion.loop.stop()
    assert [each for each in found if each.gap is None] == [first, second, fifth, late]
    assert gaps(found) == [("", {"from": 3, "to": 4})]


async def test_each_stored_entry_is_counted_once_in_its_hour_and_old_figures_are_dropped(trail: Trail) -> None:
    hour = now_ms() // 3_600_000 * 3_600_000
    query = "SELECT hour, key, entries FROM audit_figures WHERE tenant_id = $1 ORDER BY hour, key"
    await trail.figure(hour - 500 * 86_400_000, "long.ago", 1)
    first, second, earlier = (
        trail.entry(1, occurred_at=hour),
        trail.entry(2, occurred_at=hour + 3_599_999),
        trail.entry(3, occurred_at=hour - 1),
    )
    ingestion = await trail.ingest()
    await trail.publish(first, first, second)
    await trail.stored(2)
    await trail.publish(second, earlier, trail.entry(5, occurred_at=hour, key="token.sign-in.refused"))
    await trail.stored(5)
    await ingestion.loop.stop()
    assert [tuple(row) for row in await trail.fetch(query)] == [
        (hour - 3_600_000, "management.user.update", 1),
        (hour, "audit.gap", 1),
        (hour, "management.user.update", 2),
        (hour, "token.sign-in.refused", 1),
    ]


async def test_a_new_epoch_is_recorded_as_a_gap_of_its_own(trail: Trail) -> None:
    def exchange(epoch: str, sequence: int) -> AuditEntry:
        return trail.entry(sequence, log="management", epoch=epoch, key="token.exchange.taken")

    ingestion = await trail.ingest()
    await trail.publish(exchange("a", 1), exchange("b", 1), exchange("a", 1), exchange("c", 3), exchange("c", 4))
    found = await trail.stored(6)
    await ingestion.loop.stop()
    assert gaps(found) == [("b", {"previousEpoch": "a"}), ("c", {"from": 1, "to": 2, "previousEpoch": "b"})]


async def test_a_malformed_message_is_skipped_counted_and_logged(trail: Trail) -> None:
    ingestion = await trail.ingest()
    good = trail.entry(1)
    wrong = [
        b"",
        b"\xff",
        b'{"id": 1}',
        msgspec.json.encode(trail.entry(2)).replace(b'"management"', b'"another"'),
        msgspec.json.encode(trail.entry(2, log="template")),
        msgspec.json.encode(trail.entry(0)),
        msgspec.json.encode(trail.entry(2**63)),
        msgspec.json.encode(trail.entry(2)).replace(b'"sequence":2', b'"sequence":1e999'),
        msgspec.json.encode(trail.entry(2)).replace(b'"sequence":2', b'"sequence":' + b"2" * 9999),
        msgspec.json.encode(trail.entry(2))[:-1] + b',"new":' + b"[" * 9999 + b"]" * 9999 + b"}",
        msgspec.json.encode(trail.entry(2, occurred_at=-1)),
        msgspec.json.encode(trail.entry(2, occurred_at=2**60)),
        msgspec.json.encode(msgspec.structs.replace(trail.entry(2), tenant_id="another")),
    ]
    with captured_logs("management") as log:
        for text in (*wrong, b"[", b"[7]"):
            await trail.publish_raw("management", text)
        await trail.publish_raw("management", msgspec.json.encode([trail.entry(2, log="template"), good]))
        assert await trail.stored(1) == [good]
    await ingestion.loop.stop()
    skipped = len(wrong) + 3
    assert log.getvalue().count("audit.entry-malformed") == skipped
    assert trail.skipped._value.get() == skipped


async def test_text_and_numbers_that_cannot_be_stored_are_replaced_and_the_entry_stays(trail: Trail) -> None:
    """Though no publisher sends them; the others in the message are as they were."""
    ingestion = await trail.ingest()
    good = msgspec.json.encode(trail.entry(1))
    bad: list[tuple[bytes, dict[str, Any]]] = [
        (b'"userAgent":"a\\u0000b"', {"user_agent": "a\N{REPLACEMENT CHARACTER}b", "altered": ("userAgent",)}),
        (b'"userAgent":"\\\\u0000"', {"user_agent": "\\u0000"}),
        (b'"address":"\\ud800"', {"address": "\N{REPLACEMENT CHARACTER}", "altered": ("address",)}),
        (b'"address":"\xff"', {"address": "\N{REPLACEMENT CHARACTER}", "altered": ("address",)}),
        (b'"userId":"' + b"u" * 100_000 + b'"', {"user_id": "u" * 256, "altered": ("userId",)}),
        (b'"given":{"roleIds":["' + b"r" * 257 + b'"]}', {"given": {"roleIds": ("r" * 256,)}, "altered": ("given",)}),
        (b'"scope":"' + b"s" * 2049 + b'"', {"scope": "s" * 2048, "altered": ("scope",)}),
        (b'"ids":["u"]', {"altered": ("ids",)}),
        (b'"expiresAt":1e999', {"altered": ("expiresAt",)}),
        (b'"revision":' + b"9" * 9999, {"altered": ("revision",)}),
        (b'"context":{"reason":"\\u0000"}', {"context": AuditContext(reason="\ufffd"), "altered": ("context",)}),
    ]
    expected = [trail.entry(2 + number, **changes) for number, (_, changes) in enumerate(bad)]
    for each, (text, _) in zip(expected, bad, strict=True):
        published = msgspec.structs.replace(trail.entry(each.sequence), id=each.id, occurred_at=each.occurred_at)
        altered = msgspec.json.encode(published)[:-1] + b"," + text + b"}"
        await trail.publish_raw("management", b"[" + good + b"," + altered + b"]")
    found = await trail.stored(1 + len(bad))
    await ingestion.loop.stop()
    assert [each for each in found if each.sequence > 1] == expected
    assert gaps(found) == []


async def test_only_one_of_two_replicas_ingests_and_the_other_takes_over(trail: Trail) -> None:
    first, second = await trail.ingest(), await trail.ingest()
    await trail.publish(*(trail.entry(number) for number in (1, 2, 3)))
    await trail.stored(3)
    await first.loop.stop()
    await trail.publish(*(trail.entry(number) for number in (4, 5)))
    found = await trail.stored(5)
    await second.loop.stop()
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5]


async def test_partitions_are_made_ahead_and_dropped_after_the_retention(trail: Trail, management: Management) -> None:
    database = management.database
    old = Month(2019, 12)
    await create_partitions(database, [old, old.next])
    written = trail.entry(1, occurred_at=old.begins_at)
    ingestion = await trail.ingest()
    await trail.publish(written, trail.entry(2))
    found = await trail.stored(1)
    await ingestion.loop.stop()
    assert [each.sequence for each in found] == [2]
    now = Month.of(now_ms())
    for table in ("audit_entries", "audit_parties", "audit_targets"):
        rows = await database.fetch(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = $1::regclass", table
        )
        names = {row[0] for row in rows}
        assert names.isdisjoint({old.partition(table), old.next.partition(table)})
        assert {each.partition(table) for each in (now, now.next, now.next.next)} <= names


@pytest.mark.parametrize(("retention_days", "kept"), [(30, [366]), (400, [431, 366]), (500, [531, 431, 366])])
async def test_ends_of_impersonations_are_kept_as_long_as_their_stories(
    trail: Trail, retention_days: int, kept: list[int]
) -> None:
    """An entry stays for its month and a day ahead longer; an end at least as long as a token may be valid."""
    now, hour = now_ms(), 3_600_000
    for days in (366, 431, 531):
        await trail.ended(f"user:{days}", now - days * 86_400_000 + hour)
    ingestion = await trail.ingest(retention_days=retention_days)
    await trail.publish(trail.entry(1))
    await trail.stored(1)
    await ingestion.loop.stop()
    rows = await trail.fetch("SELECT party FROM party_ends WHERE tenant_id = $1 ORDER BY ended_at")
    assert [row["party"] for row in rows] == [f"user:{days}" for days in kept]


def test_months_begin_and_end_in_utc() -> None:
    month = Month.of(int(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() * 1000))
    assert (month, month.next) == (Month(2026, 12), Month(2027, 1))
    assert month.next.begins_at == int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.heavy
async def test_a_database_that_falls_silent_is_left_for_one_that_answers(trail: Trail, management: Management) -> None:
    """Within the five seconds that a statement of a worker may take; its session there still holds the lock."""
    url = management.settings.database_url
    before = trail.entry(1), trail.entry(2)
    async with TcpProxy(url) as talking:
        parts = urlsplit(url)
        user, _, server = parts.netloc.rpartition("@")
        several = parts._replace(netloc=f"{user}@{urlsplit(talking.url).netloc.rpartition('@')[2]},{server}").geturl()
        ingestion = await trail.ingest(database_url=several)
        await trail.publish(before[0])
        assert await trail.stored(1) == [before[0]]
        talking.swallow()
        with captured_logs("management") as log:
            await trail.publish(before[1])
            async with asyncio.timeout(10):
                while "audit.ingestion-interrupted" not in log.getvalue():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
    assert await trail.stored(2) == list(before)
    await ingestion.loop.stop()
