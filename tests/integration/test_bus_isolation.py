"""Isolation of the bus: NATS does not check the subjects it *delivers* to against what a user may publish.

These are the reply subject of a request and the deliver subject of a consumer. A client that may send any request could
have the server put genuine messages, or its own answers, onto the subjects of others; these tests are the attempts.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from all_in_one.provision import ServerAddresses
from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams
from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from tests.support.own_servers import OwnServers
from tests.support.patience import PATIENCE_S, round_trip

pytestmark = pytest.mark.servers

SERVICES = ("management", "token", "template")
STREAMS_OF_SERVICES = (STREAM_INTERNAL, STREAM_EVENTS, STREAM_STATE)
READS = {"token": STREAM_STATE, "template": STREAM_STATE, "subscriber": STREAM_EVENTS}
MARKED = "identity.isolation.role.r1"
SETTLED_S = 0.2
EVENTUALLY_S = 30


@asynccontextmanager
async def connected(addresses: ServerAddresses, user: str) -> AsyncIterator[Client]:
    """Connect as an ordinary client."""

    async def ignore(_: Exception) -> None:
        """Refusals are expected."""

    inboxes = {} if user == "subscriber" else {"inbox_prefix": f"_INBOX_{user}"}
    url = getattr(addresses, f"{user}_nats_url")
    client = await nats.connect(url, error_cb=ignore, max_reconnect_attempts=-1, reconnect_time_wait=0.1, **inboxes)
    try:
        yield client
    finally:
        await client.close()


async def make_streams(addresses: ServerAddresses, service: str = "template") -> None:
    """Create the streams as every service does at its start; retry until the server is ready."""
    bus = Bus(getattr(addresses, f"{service}_nats_url"), service=service)
    bus.start()
    try:
        await bus.connected()
        async with asyncio.timeout(EVENTUALLY_S):
            made = False
            while not made:
                with contextlib.suppress(NatsError, TimeoutError):
                    await ensure_streams(bus)
                    made = True
    finally:
        await bus.stop()


@pytest.fixture
async def addresses(servers: ServerAddresses) -> ServerAddresses:
    """The servers, with the streams and one marked message in them and in their copies."""
    await make_streams(servers)
    async with connected(servers, "template") as template, connected(servers, "subscriber") as subscriber:
        await template.jetstream().publish(MARKED, b'{"marked": true}')
        last = await template.jetstream().get_last_msg(STREAM_EVENTS, MARKED)
        async with asyncio.timeout(EVENTUALLY_S):
            while not (await state(template.jetstream()))[STREAM_STATE]:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
            copy = subscriber.jetstream()
            while (await copy.stream_info(STREAM_EVENTS)).state.last_seq < (last.seq or 0):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
    return servers


async def state(jetstream: JetStreamContext) -> dict[str, dict[str, int]]:
    """Return the number of messages in the services' streams on each subject of the attempts."""
    found = {}
    for stream in STREAMS_OF_SERVICES:
        info = await jetstream.stream_info(stream, subjects_filter=">")
        subjects = info.state.subjects or {}
        found[stream] = {subject: count for subject, count in subjects.items() if "isolation" in subject}
    return found


@pytest.fixture
async def untouched(addresses: ServerAddresses) -> AsyncIterator[None]:
    """Assert that the test changed nothing in the services' streams, and that no service received a message."""
    heard: list[str] = []

    async def hear(message: nats.aio.msg.Msg) -> None:
        heard.append(message.subject)

    async with connected(addresses, "management") as management:
        # Literal subjects: a push consumer delivers only to a subject with a subscriber to exactly that subject.
        await management.subscribe("identity-rpc.isolation.password-check", cb=hear)
        await management.subscribe("identity-relay.isolation.management", cb=hear)
        await round_trip(management)
        before = await state(management.jetstream())
        yield
        await asyncio.sleep(SETTLED_S)
        assert await state(management.jetstream()) == before
        assert heard == []


SUBJECTS_OF_SERVICES = (
    "identity-internal.isolation.user.u1",
    MARKED,
    "identity.isolation.member-permissions.o1.u1",
    "identity-relay.isolation.management",
    "identity-rpc.isolation.password-check",
)
NAME = "isolation-attempt"


@asynccontextmanager
async def consumer(jetstream: JetStreamContext, stream: str, config: ConsumerConfig) -> AsyncIterator[None]:
    """Create a consumer for the time of the body."""
    await jetstream.add_consumer(stream, config)
    yield
    await asyncio.sleep(SETTLED_S)
    await jetstream.delete_consumer(stream, config.name or "")


@pytest.mark.usefixtures("untouched")
class TestASubscriberCannotPublishThroughTheServer:
    async def test_by_pulling_with_a_reply_to_a_services_subject(self, addresses: ServerAddresses) -> None:
        config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, filter_subject=MARKED)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{NAME}"
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                async with consumer(subscriber.jetstream(), STREAM_EVENTS, config):
                    for request in (b"1", b'{"batch": 100, "no_wait": true}'):  # a message; a status without a body
                        await subscriber.publish(next_message, request, reply=subject)

    async def test_by_a_push_consumer_that_delivers_on_a_services_subject(self, addresses: ServerAddresses) -> None:
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                config = ConsumerConfig(
                    name=NAME, ack_policy=AckPolicy.NONE, filter_subject=MARKED, deliver_subject=subject
                )
                async with consumer(subscriber.jetstream(), STREAM_EVENTS, config):
                    pass

    async def test_by_a_question_whose_answer_goes_to_a_services_subject(self, addresses: ServerAddresses) -> None:
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                for question in ("INFO", "STREAM.NAMES", f"STREAM.INFO.{STREAM_EVENTS}", f"DIRECT.GET.{STREAM_EVENTS}"):
                    await subscriber.publish(f"$JS.API.{question}", b"", reply=subject)
            await round_trip(subscriber)

    async def test_by_sending_its_own_consumer_through_the_import(self, addresses: ServerAddresses) -> None:
        """JetStream's answer about a consumer is also a request to create one, and the import leads to the services."""
        import_of_services = f"services.$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}"
        async with connected(addresses, "subscriber") as subscriber, connected(addresses, "management") as management:
            made = management.jetstream()
            before = (await made.stream_info(STREAM_EVENTS)).state.consumer_count
            config = ConsumerConfig(
                ack_policy=AckPolicy.NONE,
                filter_subject=MARKED,
                deliver_subject="identity-rpc.isolation.password-check",
            )
            for named in (config.evolve(name=NAME), config, config.evolve(deliver_subject=None)):
                info = await subscriber.jetstream().add_consumer(STREAM_EVENTS, named)
                for question, body in (
                    (f"CONSUMER.INFO.{STREAM_EVENTS}.{info.name}", b""),
                    (f"CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{info.name}", b"1"),
                    (f"CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{info.name}", b'{"batch": 100, "no_wait": true}'),
                    (f"DIRECT.GET.{STREAM_EVENTS}.{MARKED}", b""),
                ):
                    await subscriber.publish(f"$JS.API.{question}", body, reply=import_of_services)
                await round_trip(subscriber)
                await asyncio.sleep(SETTLED_S)
                await subscriber.jetstream().delete_consumer(STREAM_EVENTS, info.name)
            assert (await made.stream_info(STREAM_EVENTS)).state.consumer_count == before


@pytest.mark.usefixtures("untouched")
class TestNoUserCanDeleteStreams:
    """A status without a body, delivered to the API, would be a request by the server itself."""

    @pytest.mark.parametrize("user", READS)
    async def test_by_a_pull_request_whose_reply_is_the_deletion(self, addresses: ServerAddresses, user: str) -> None:
        stream = READS[user]
        config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{NAME}"
        async with connected(addresses, user) as client:
            async with consumer(client.jetstream(), stream, config):
                for action in ("DELETE", "PURGE", "UPDATE", "MSG.DELETE", "RESTORE"):
                    for victim in STREAMS_OF_SERVICES:
                        deletion = f"$JS.API.STREAM.{action}.{victim}"
                        await client.publish(next_message, b'{"batch": 1, "no_wait": true}', reply=deletion)
            assert (await client.jetstream().stream_info(stream)).state.messages

    @pytest.mark.parametrize("user", READS)
    async def test_by_a_push_consumer_whose_heartbeat_is_the_deletion(
        self, addresses: ServerAddresses, user: str
    ) -> None:
        stream = READS[user]
        async with connected(addresses, user) as client:
            for victim in STREAMS_OF_SERVICES:
                config = ConsumerConfig(
                    name=NAME,
                    ack_policy=AckPolicy.NONE,
                    deliver_subject=f"$JS.API.STREAM.DELETE.{victim}",
                    filter_subject=MARKED,
                    headers_only=True,
                    idle_heartbeat=0.1,
                )
                async with consumer(client.jetstream(), stream, config):
                    pass
            assert (await client.jetstream().stream_info(stream)).state.messages

    @pytest.mark.parametrize("user", SERVICES)
    async def test_by_a_missed_message_whose_reply_is_the_deletion(self, addresses: ServerAddresses, user: str) -> None:
        async with connected(addresses, user) as client:
            for victim in STREAMS_OF_SERVICES:
                deletion = f"$JS.API.STREAM.DELETE.{victim}"
                await client.publish(f"$JS.API.DIRECT.GET.{STREAM_STATE}.nothing.there", b"", reply=deletion)
            await round_trip(client)


class TestWhatASubscriberCanDo:
    """With an ordinary client and the subscriber's credentials."""

    @pytest.fixture
    async def subscriber(self, addresses: ServerAddresses) -> AsyncIterator[Client]:
        async with connected(addresses, "subscriber") as client:
            yield client

    async def test_pull_with_a_durable_consumer(self, subscriber: Client) -> None:
        jetstream = subscriber.jetstream()
        for _ in range(2):  # the second continues with the first one's consumer
            reading = await jetstream.pull_subscribe(MARKED, durable="isolation-durable", stream=STREAM_EVENTS)
            (message,) = await reading.fetch(1, PATIENCE_S)
            await message.ack_sync(PATIENCE_S)
            await reading.unsubscribe()
        info = await jetstream.consumer_info(STREAM_EVENTS, "isolation-durable")
        assert info.ack_floor is not None
        assert info.ack_floor.consumer_seq == 2
        await jetstream.delete_consumer(STREAM_EVENTS, "isolation-durable")

    async def test_pull_with_an_ephemeral_consumer(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().pull_subscribe(MARKED, stream=STREAM_EVENTS)
        (message,) = await reading.fetch(1, PATIENCE_S)
        await message.ack_sync(PATIENCE_S)
        assert message.subject == MARKED

    async def test_be_pushed_to_durably(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().subscribe(MARKED, durable="isolation-pushed", stream=STREAM_EVENTS)
        message = await reading.next_msg(PATIENCE_S)
        await message.ack_sync(PATIENCE_S)
        assert message.subject == MARKED
        await subscriber.jetstream().delete_consumer(STREAM_EVENTS, "isolation-pushed")

    async def test_read_the_last_message_of_a_subject(self, subscriber: Client) -> None:
        for direct in (True, False):
            message = await subscriber.jetstream().get_last_msg(STREAM_EVENTS, MARKED, direct=direct)
            assert message.data == b'{"marked": true}'

    async def test_but_not_see_streams_of_the_services(self, subscriber: Client) -> None:
        info = await subscriber.jetstream().account_info()
        assert info.streams == 1
        for stream in (STREAM_INTERNAL, STREAM_STATE):
            with pytest.raises((NatsError, TimeoutError)):
                await subscriber.jetstream(timeout=0.5).stream_info(stream)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    with OwnServers(tmp_path_factory.mktemp("isolation")) as own:
        yield own


class TestSubscribersReadWhatTemplateServicePublishes:
    @staticmethod
    async def publish(addresses: ServerAddresses, *subjects: str) -> None:
        async with connected(addresses, "template") as template:
            for subject in subjects:
                await template.jetstream().publish(subject, subject.encode())

    @staticmethod
    async def read(addresses: ServerAddresses, *, until: str) -> list[str]:
        """Return the subjects a subscriber reads from the beginning up to one; retry until the stream exists."""
        async with connected(addresses, "subscriber") as subscriber, asyncio.timeout(EVENTUALLY_S):
            while True:
                try:
                    reading = await subscriber.jetstream().pull_subscribe("identity.>", stream=STREAM_EVENTS)
                    heard: list[str] = []
                    while until not in heard:
                        heard += [message.subject for message in await reading.fetch(100, timeout=1)]
                except (NotFoundError, NatsError, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    return heard

    async def test_if_the_subscriber_starts_first(self, own: OwnServers) -> None:
        reading = asyncio.create_task(self.read(own.addresses, until="identity.t.role.1"))
        await asyncio.sleep(0.2)
        for service in SERVICES:
            await make_streams(own.addresses, service)
        await self.publish(own.addresses, "identity.t.role.1")
        assert await reading == ["identity.t.role.1"]

    async def test_to_the_last_message_of_a_large_burst(self, own: OwnServers) -> None:
        """Flow control applies into the copy and out of it."""
        count, size = 300, 200_000
        await make_streams(own.addresses)
        async with connected(own.addresses, "template") as template:
            jetstream = template.jetstream(publish_async_max_pending=64)
            for number in range(count):
                await jetstream.publish_async(f"identity.large.role.r{number}", b"x" * size)
            await jetstream.publish_async_completed()
        async with connected(own.addresses, "subscriber") as subscriber:
            reading = await subscriber.jetstream().subscribe(
                "identity.large.>", stream=STREAM_EVENTS, ordered_consumer=True
            )
            heard = [(await reading.next_msg(timeout=10)).subject.rpartition(".")[2] for _ in range(count)]
        assert heard == [f"r{number}" for number in range(count)]

    async def test_over_a_restart(self, own: OwnServers) -> None:
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.2")
        own.restart_nats()
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.3")
        heard = await self.read(own.addresses, until="identity.t.role.3")
        assert heard[-2:] == ["identity.t.role.2", "identity.t.role.3"]

    async def test_after_only_their_copy_was_lost(self, own: OwnServers) -> None:
        await make_streams(own.addresses)
        await self.publish(own.addresses, "identity.t.role.4")
        before = await self.read(own.addresses, until="identity.t.role.4")
        own.restart_nats(without="SUBSCRIBERS")
        await make_streams(own.addresses, "management")
        assert await self.read(own.addresses, until="identity.t.role.4") == before

    async def test_after_everything_was_lost(self, own: OwnServers) -> None:
        own.restart_nats(without=".")
        await make_streams(own.addresses, "token")
        await self.publish(own.addresses, "identity.t.role.5")
        assert await self.read(own.addresses, until="identity.t.role.5") == ["identity.t.role.5"]
