"""Following a stream: from a position in a store or in memory, over failures and a recreated stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import msgspec
import pytest
import pytest_asyncio
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamPosition
from identity_common.bus.streams import ensure_streams
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_STATE, UserState, event_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent
from tests.support.management_api import unique
from tests.support.own_servers import OwnServers
from tests.support.waiting import WAIT_S, eventually_here


class Buses:
    """Connections of the service that publishes and of one that reads."""

    def __init__(self, addresses: ServerAddresses) -> None:
        self.publisher = Bus(addresses.management_nats_url, service="management")
        self.reader = Bus(addresses.token_nats_url, service="token")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        self.publisher.start()
        self.reader.start()
        try:
            await self.create_streams()
            yield self
        finally:
            await self.reader.stop()
            await self.publisher.stop()

    async def create_streams(self) -> None:
        async with asyncio.timeout(WAIT_S):
            is_created = False
            while not is_created:
                with suppress(NatsError, OSError, TimeoutError):  # the server has just started
                    await self.publisher.connected()
                    await ensure_streams(self.publisher)
                    is_created = True
                await asyncio.sleep(0.02)  # a client that has just ended refuses at once, and the loop must notice it

    async def publish(self, tenant: str, *names: str) -> None:
        """Publish a user with each name."""
        for name in names:
            event = CloudEvent(
                id=f"{tenant}:management:1",
                source="/management",
                type="user.updated",
                subject=name,
                time="2026-01-01T00:00:00.000+00:00",
                tenantid=tenant,
                revision=1,
                data=msgspec.Raw(msgspec.json.encode(UserState(id=name))),
            )
            subject = event_subject("management", tenant, "user", name)
            await self.publisher.jetstream().publish(subject, msgspec.json.encode(event))


@pytest_asyncio.fixture
async def buses(servers: ServerAddresses) -> AsyncIterator[Buses]:
    async with Buses(servers).connected() as buses:
        yield buses


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    """Servers whose streams are deleted."""
    with OwnServers(tmp_path_factory.mktemp("own")) as own:
        yield own


@pytest.fixture
def tenant() -> str:
    return unique("t")


class Recorded:
    """Applies batches to a list, as an owner that remembers its position in memory or in a store.

    Attributes:
        names: The users of the applied batches.
        reads: The positions after which these batches were read.
        applied: The position that is applied.
        failures: Raised for the next batches.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.reads: list[StreamPosition] = []
        self.applied = StreamPosition()
        self.failures: list[Exception] = []
        self.keeps = True

    async def apply(self, batch: Batch, read: StreamPosition) -> StreamPosition:
        if not batch.messages:
            return read
        if self.failures:
            raise self.failures.pop()
        self.names += [message.event.subject for message in batch.messages]
        self.reads.append(read)
        if self.keeps:
            self.applied = batch.end(read)
        return self.applied

    async def position(self) -> StreamPosition:
        return self.applied


@asynccontextmanager
async def following(
    buses: Buses,
    tenant: str,
    recorded: Recorded,
    *,
    position: Callable[[], Awaitable[StreamPosition]] | None = None,
) -> AsyncIterator[None]:
    follower = StreamFollower(
        buses.reader,
        STREAM_STATE,
        [event_subject("management", tenant, "user", "*")],
        recorded.apply,
        position=position,
        name="tests",
        log=get_logger(__name__),
        failed="tests.failed",
        interrupted="tests.interrupted",
        expected=(LookupError,),
    )
    follower.start()
    try:
        yield
    finally:
        await follower.stop()


@pytest.mark.heavy
@pytest.mark.parametrize("error", [LookupError, ConnectionError, ArithmeticError])
async def test_a_batch_that_failed_is_applied_again(buses: Buses, tenant: str, error: type[Exception]) -> None:
    recorded = Recorded()
    async with following(buses, tenant, recorded):
        await buses.publish(tenant, "a", "b")
        await eventually_here(lambda: recorded.names == ["a", "b"])
        recorded.failures = [error(), error()]
        await buses.publish(tenant, "c")
        await eventually_here(lambda: recorded.names == ["a", "b", "c"])
    assert recorded.failures == []


@pytest.mark.servers
async def test_a_follower_reads_after_the_position_in_its_store(buses: Buses, tenant: str) -> None:
    recorded = Recorded()
    recorded.applied = StreamPosition("another incarnation", 10**9)
    async with following(buses, tenant, recorded, position=recorded.position):
        await buses.publish(tenant, "a", "b")
        await eventually_here(lambda: recorded.names == ["a", "b"])
    assert recorded.reads[0].sequence == 0

    stored = recorded.applied
    async with following(buses, tenant, recorded, position=recorded.position):
        await buses.publish(tenant, "c")
        await eventually_here(lambda: recorded.names == ["a", "b", "c"])
    assert recorded.reads[-1] == stored


@pytest.mark.servers
async def test_reading_resumes_at_the_position_of_a_store_that_fell_back(buses: Buses, tenant: str) -> None:
    recorded = Recorded()
    async with following(buses, tenant, recorded, position=recorded.position):
        await buses.publish(tenant, "a")
        await eventually_here(lambda: recorded.names == ["a"])
        lagging = recorded.applied
        await buses.publish(tenant, "b")
        await eventually_here(lambda: recorded.names == ["a", "b"])
        recorded.keeps, recorded.applied = False, lagging  # a replica of the store, without b
        await buses.publish(tenant, "c")
        await eventually_here(lambda: recorded.names[:5] == ["a", "b", "c", "b", "c"])
    assert recorded.reads[3] == lagging


@pytest.mark.heavy
async def test_a_recreated_stream_is_read_from_its_beginning(own: OwnServers, tenant: str) -> None:
    recorded = Recorded()
    async with Buses(own.addresses).connected() as buses, following(buses, tenant, recorded):
        await buses.publish(tenant, "a", "b")
        await eventually_here(lambda: recorded.names == ["a", "b"])
        await asyncio.to_thread(own.restart_nats, without=".")
        await buses.create_streams()
        await buses.publish(tenant, "c")
        await eventually_here(lambda: recorded.names == ["a", "b", "c"])


@pytest.mark.heavy
async def test_a_stream_that_is_recreated_just_before_it_is_read_is_read_from_its_beginning(
    own: OwnServers, tenant: str
) -> None:
    """The position is known by then; after it in the new incarnation, events would be lost."""
    recorded = Recorded()
    async with Buses(own.addresses).connected() as buses:
        async with following(buses, tenant, recorded):
            await buses.publish(tenant, "a", "b", "c")
            await eventually_here(lambda: recorded.names == ["a", "b", "c"])

        calls = 0

        async def position() -> StreamPosition:  # called when the incarnation is known, before the stream is read
            nonlocal calls
            calls += 1
            if calls == 1:
                await asyncio.to_thread(own.restart_nats, without=".")
                await buses.create_streams()
                await buses.publish(tenant, "d", "e", "f", "g")
            return recorded.applied

        async with following(buses, tenant, recorded, position=position):
            await eventually_here(lambda: recorded.names[3:] == ["d", "e", "f", "g"])
    assert recorded.reads[-1].sequence < 4
