"""What came through a removed identity ends, once, also where its removal is read late or again."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest_asyncio

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.clock import now_ms
from identity_common.wire.events import IdentityState
from provision import ServerAddresses
from stead.event_types import CloudEvent
from tests.component.token.test_closed_connectors import Replica
from tests.support.authorizing import opened
from tests.support.running_stack import RunningStack
from token_service.sign_in.ended_identities import EndedIdentities
from token_service.sign_in.ending import SessionEnds

HOUR_MS = 3_600_000


class Readers:
    """Two replicas that read the same stream; the bus brings nothing by itself."""

    def __init__(self, replicas: list[Replica], tenant_id: str, nats_url: str) -> None:
        self.replicas = replicas
        bus = Bus(nats_url, service="token")
        self.readers = [
            EndedIdentities(
                bus,
                each.stores.engine,
                SessionEnds(each.sessions, each.stores.authorizations),
                tenant_id=tenant_id,
            )
            for each in replicas
        ]

    async def read(self, sequence: int, ended_at: int, *, user: str = "user") -> None:
        """Let the first replica read that an identity was removed."""
        state = IdentityState(id="i", deleted=True, user_id=user, connector_id="c", subject="person", ended_at=ended_at)
        event = CloudEvent(
            id=f"e{sequence}",
            source="/management",
            type="identity.deleted",
            time="2026-01-01T00:00:00Z",
            tenantid="t",
            revision=sequence,
            data=msgspec.Raw(msgspec.json.encode(state)),
            subject="user/i",
        )
        batch = Batch([StreamMessage("identity", sequence, event)], caught_up=True)
        end = await self.readers[0].apply(batch, StreamPosition("a-stream", sequence - 1))
        assert end == StreamPosition("a-stream", sequence)


@pytest_asyncio.fixture
async def readers(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Readers]:
    tenant_id = f"t{secrets.token_hex(6)}"
    addresses = {"database_url": servers.token_database_url, "redis_url": servers.token_redis_url}
    async with AsyncExitStack() as stacked:
        stores = [await stacked.enter_async_context(opened(**addresses, tenant_id=tenant_id)) for _ in range(2)]
        yield Readers([Replica(each, tenant_id) for each in stores], tenant_id, servers.token_nats_url)


async def test_what_came_through_a_removed_identity_ends_and_nothing_that_began_later(readers: Readers) -> None:
    replica, now = readers.replicas[0], now_ms()
    before = await replica.sign_in("c", now - HOUR_MS)
    elsewhere = await replica.sign_in("other", now - HOUR_MS)
    await readers.read(7, now - 1_000, user="another")
    assert await replica.revoked(before[1]) == 0
    await readers.read(8, now - 1_000)
    assert [await replica.sessions.find(cookie) is not None for cookie, _ in (before, elsewhere)] == [False, True]
    assert [await replica.revoked(each) for _, each in (before, elsewhere)] == [1, 0]
    for reader in readers.readers:
        assert await reader.position() == StreamPosition("a-stream", 8), "the other replica goes on there"
    again = await replica.sign_in("c", now)
    await readers.read(8, now - HOUR_MS)
    assert await replica.sessions.find(again[0]) is not None, "it was read again"
    assert await replica.revoked(again[1]) == 0
