"""Following a stream: from a position in a store or in memory, over failures and a recreated stream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Self

import msgspec
import pytest
import pytest_asyncio
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamPosition
from identity_common.bus.streams import ensure_streams, incarnation
from identity_common.revisions import Source
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_EVENTS, STREAM_STATE, UserState, event_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent, OrganizationState
from tests.support.management_api import unique
from tests.support.own_servers import OwnServers
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, eventually_here


class Buses:
    """Connections of the service that publishes and of one that reads."""

    def __init__(self, addresses: ServerAddresses) -> None:
        self._revision = 0
        self.publisher = Bus(addresses.management_nats_url, service="management")
        self.reader = Bus(addresses.token_nats_url, service="token")
        self.template = Bus(addresses.template_nats_url, service="template")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Self]:
        self.publisher.start()
        self.reader.start()
        self.template.start()
        try:
            await self.create_streams()
            yield self
        finally:
            await self.reader.stop()
            await self.publisher.stop()
            await self.template.stop()

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
            await self._publish(self.publisher, "management", tenant, "user", UserState(id=name))

    async def publish_organizations(self, tenant: str, *names: str) -> None:
        """Publish an organization with each name."""
        for name in names:
            await self._publish(self.template, "template", tenant, "organization", OrganizationState(id=name))

    async def _publish(
        self, bus: Bus, source: Source, tenant: str, kind: str, state: UserState | OrganizationState
    ) -> None:
        self._revision += 1
        event = CloudEvent(
            id=f"{tenant}:{source}:{self._revision}",
            source=f"/{source}",
            type=f"{kind}.updated",
            subject=state.id,
            time="2026-01-01T00:00:00.000+00:00",
            tenantid=tenant,
            revision=self._revision,
            data=msgspec.Raw(msgspec.json.encode(state)),
        )
        async with asyncio.timeout(WAIT_S):
            await bus.connected()
        await bus.jetstream().publish(event_subject(source, tenant, kind, state.id), msgspec.json.encode(event))

    async def copied(self, tenant: str, name: str) -> None:
        """Wait until the copy has the last event of an organization."""
        jetstream, subject = self.reader.jetstream(), event_subject("template", tenant, "organization", name)
        last = await jetstream.get_last_msg(STREAM_EVENTS, subject)

        async def is_there() -> bool:
            try:
                return (await jetstream.get_last_msg(STREAM_STATE, subject)).data == last.data
            except NotFoundError:
                return False

        async with asyncio.timeout(WAIT_S):
            while not await is_there():  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)


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
        if not batch.messages and batch.goes_on_at is None:
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
async def following_organizations(buses: Buses, tenant: str, recorded: Recorded) -> AsyncIterator[None]:
    follower = StreamFollower(
        buses.reader,
        STREAM_EVENTS,
        [event_subject("template", tenant, "organization", "*")],
        recorded.apply,
        snapshot=STREAM_STATE,
        position=recorded.position,
        name="tests",
        log=get_logger(__name__),
        failed="tests.failed",
        interrupted="tests.interrupted",
    )
    follower.start()
    try:
        yield
    finally:
        await follower.stop()


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


@pytest.mark.heavy
async def test_reading_resumes_on_the_next_connection_though_the_last_one_was_not_silent_for_long(
    servers: ServerAddresses, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("identity_common.bus.stream_reader._SILENCE_S", 10 * WAIT_S)
    recorded = Recorded()
    async with TcpProxy(servers.token_nats_url) as proxy:
        through = msgspec.structs.replace(servers, token_nats_url=proxy.url)
        async with Buses(through).connected() as buses, following(buses, tenant, recorded):
            await buses.publish(tenant, "a")
            await eventually_here(lambda: recorded.names == ["a"])
            await proxy.cut()
            await proxy.mend()
            await buses.publish(tenant, "b")
            await eventually_here(lambda: recorded.names == ["a", "b"])


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


@pytest.mark.heavy
async def test_what_a_stream_may_have_dropped_is_read_from_its_snapshot(buses: Buses, tenant: str) -> None:
    """Once: after that the stream itself is read, which has an event as soon as it is published."""
    recorded = Recorded()
    await buses.publish_organizations(tenant, "a", "b", "b", "a", "c", "a")
    await buses.copied(tenant, "a")
    async with following_organizations(buses, tenant, recorded):
        await eventually_here(lambda: recorded.names == ["b", "c", "a"])
        await buses.publish_organizations(tenant, "b", "a", "a")
        await eventually_here(lambda: recorded.names[3:] == ["b", "a", "a"])
    assert recorded.applied.stream == await incarnation(buses.reader, STREAM_EVENTS)
    await buses.publish_organizations(tenant, "b", "d")
    async with following_organizations(buses, tenant, recorded):
        await eventually_here(lambda: recorded.names[6:] == ["b", "d"])


@pytest.mark.heavy
async def test_a_recreated_stream_is_read_from_its_beginning_after_an_older_snapshot(
    own: OwnServers, tenant: str
) -> None:
    """A position in the snapshot is one in the stream only if the stream has the same event there."""
    recorded = Recorded()
    async with Buses(own.addresses).connected() as buses:
        await buses.publish_organizations(tenant, "a", "b", "c")
        await buses.copied(tenant, "c")
        await asyncio.to_thread(own.restart_nats, without=f"SERVICES/streams/{STREAM_EVENTS}")
        await buses.create_streams()
        await buses.publish_organizations(tenant, "d", "e", "f", "g")
        async with following_organizations(buses, tenant, recorded):
            await eventually_here(lambda: recorded.names[-4:] == ["d", "e", "f", "g"])
    assert recorded.names[:3] == ["a", "b", "c"]
