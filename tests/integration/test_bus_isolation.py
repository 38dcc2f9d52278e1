"""Isolation of the bus: NATS does not check the subjects it *delivers* to against what a user may publish.

These are the reply subject of a request and the deliver subject of a consumer. A client that may send any request could
have the server put genuine messages, or its own answers, onto the subjects of others; these tests are the attempts.
"""

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from identity_common.wire.events import STREAM_EVENTS, STREAM_INTERNAL, STREAM_STATE
from provision import ServerAddresses
from stead.verify.feed.messages import subject_of
from tests.support.bus_clients import EVENTUALLY_S, NAME, SERVICES, SETTLED_S, connected, consumer, make_streams
from tests.support.waiting import WAIT_S, round_trip

STREAMS_OF_SERVICES = (STREAM_INTERNAL, STREAM_EVENTS, STREAM_STATE)
READS = {"token": STREAM_STATE, "template": STREAM_STATE, "subscriber": STREAM_EVENTS}
MARKED = "identity.isolation.role.r1"


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


@pytest.mark.servers
@pytest.mark.usefixtures("untouched")
class TestASubscriberCannotPublishThroughTheServer:
    @pytest.mark.heavy
    async def test_by_pulling_with_a_reply_to_a_services_subject(self, addresses: ServerAddresses) -> None:
        config = ConsumerConfig(name=NAME, ack_policy=AckPolicy.NONE, filter_subject=MARKED)
        next_message = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_EVENTS}.{NAME}"
        async with connected(addresses, "subscriber") as subscriber:
            for subject in SUBJECTS_OF_SERVICES:
                async with consumer(subscriber.jetstream(), STREAM_EVENTS, config):
                    for request in (b"1", b'{"batch": 100, "no_wait": true}'):  # a message; a status without a body
                        await subscriber.publish(next_message, request, reply=subject)

    @pytest.mark.heavy
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

    @pytest.mark.heavy
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


@pytest.mark.servers
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

    @pytest.mark.heavy
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


@pytest.mark.servers
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
            (message,) = await reading.fetch(1, WAIT_S)
            await message.ack_sync(WAIT_S)
            await reading.unsubscribe()
        info = await jetstream.consumer_info(STREAM_EVENTS, "isolation-durable")
        assert info.ack_floor is not None
        assert info.ack_floor.consumer_seq == 2
        await jetstream.delete_consumer(STREAM_EVENTS, "isolation-durable")

    async def test_pull_with_an_ephemeral_consumer(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().pull_subscribe(MARKED, stream=STREAM_EVENTS)
        (message,) = await reading.fetch(1, WAIT_S)
        await message.ack_sync(WAIT_S)
        assert message.subject == MARKED

    async def test_be_pushed_to_durably(self, subscriber: Client) -> None:
        reading = await subscriber.jetstream().subscribe(MARKED, durable="isolation-pushed", stream=STREAM_EVENTS)
        message = await reading.next_msg(WAIT_S)
        await message.ack_sync(WAIT_S)
        assert message.subject == MARKED
        await subscriber.jetstream().delete_consumer(STREAM_EVENTS, "isolation-pushed")

    async def test_read_the_last_message_of_a_subject(self, subscriber: Client) -> None:
        for direct in (True, False):
            message = await subscriber.jetstream().get_last_msg(STREAM_EVENTS, MARKED, direct=direct)
            assert message.data == b'{"marked": true}'

    @pytest.mark.heavy
    async def test_but_not_see_streams_of_the_services(self, subscriber: Client) -> None:
        info = await subscriber.jetstream().account_info()
        assert info.streams == 1
        for stream in (STREAM_INTERNAL, STREAM_STATE):
            with pytest.raises((NatsError, TimeoutError)):
                await subscriber.jetstream(timeout=0.5).stream_info(stream)


@pytest.mark.servers
async def test_only_token_service_publishes_the_not_valid_feed(addresses: ServerAddresses) -> None:
    heard: list[bytes] = []

    async def hear(message: nats.aio.msg.Msg) -> None:
        heard.append(message.data)

    subject = subject_of("isolation")
    async with connected(addresses, "subscriber") as reader:
        await reader.subscribe(subject, cb=hear)
        await round_trip(reader)
        for user in ("subscriber", "management", "template", "token"):
            async with connected(addresses, user) as publisher:
                await publisher.publish(subject, user.encode())
                await round_trip(publisher)
        async with asyncio.timeout(EVENTUALLY_S):
            while b"token" not in heard:  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)
    assert heard == [b"token"]
