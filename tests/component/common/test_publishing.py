"""Publishing batches: in order, each message acknowledged, and none counted as stored that is not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.publishing import NotAcknowledgedError, Outgoing, Publisher, publisher_on
from identity_common.failures import StoreUnavailable
from identity_common.wire.events import STREAM_INTERNAL, event_subject
from provision import ServerAddresses
from stead.event_types import CloudEvent, OrganizationState
from stead.events import EventBus, permission_changes
from tests.support.bus_clients import connected
from tests.support.lengths import length
from tests.support.management_api import Management, unique
from tests.support.public_events import captured
from tests.support.tcp_proxy import TcpProxy
from tests.support.template_source import TemplateSource
from tests.support.waiting import WAIT_S, eventually_here, round_trip

OF_NO_STREAM = "identity-relay.publishing.management"


@pytest_asyncio.fixture
async def client(management: Management) -> AsyncIterator[Client]:
    client = await nats.connect(management.addresses.management_nats_url, inbox_prefix="_INBOX_management")
    yield client
    await client.close()


@pytest_asyncio.fixture
async def bus(management: Management) -> AsyncIterator[Bus]:
    bus = Bus(management.addresses.management_nats_url, service="management")
    bus.start()
    await bus.connected()
    yield bus
    await bus.stop()


@pytest_asyncio.fixture
async def publisher(bus: Bus) -> AsyncIterator[Publisher]:
    async with publisher_on(bus) as publisher:
        yield publisher


def outgoing(tenant: str, count: int) -> list[Outgoing]:
    return [
        Outgoing(event_subject("management", tenant, "user", str(number)), f"{tenant}:{number}", str(number).encode())
        for number in range(count)
    ]


async def stored(client: Client, tenant: str) -> list[bytes]:
    """Return the payloads in the stream, in order."""
    jetstream = client.jetstream()
    info = await jetstream.stream_info(STREAM_INTERNAL, subjects_filter=f"identity-internal.{tenant}.>")
    messages = [
        await jetstream.get_last_msg(STREAM_INTERNAL, subject, direct=True) for subject in info.state.subjects or {}
    ]
    return [message.data or b"" for message in sorted(messages, key=lambda message: message.seq or 0)]


@pytest.mark.servers
@pytest.mark.heavy
async def test_acknowledged_messages_are_in_the_stream_in_order_and_repetitions_are_dropped(
    publisher: Publisher, client: Client
) -> None:
    tenant = unique("t")
    messages = outgoing(tenant, length(short=1000, long=2500))
    for _ in range(2):
        await publisher.publish(messages, timeout_s=WAIT_S)
        assert await stored(client, tenant) == [message.payload for message in messages]
    await publisher.publish([], timeout_s=WAIT_S)


@pytest.mark.servers
async def test_a_message_outside_every_stream_is_not_acknowledged(publisher: Publisher) -> None:
    messages = [*outgoing(unique("t"), 3), Outgoing(OF_NO_STREAM, "id", b"lost")]
    with pytest.raises(NotAcknowledgedError):
        await publisher.publish(messages, timeout_s=WAIT_S)
    await publisher.publish(outgoing(unique("t"), 3), timeout_s=WAIT_S)


@pytest.mark.parametrize("answer", [b'{"error":{"code":503,"description":"no space"},"stream":"S","seq":0}', b"?", b""])
async def test_a_message_that_the_stream_refuses_is_not_acknowledged(
    publisher: Publisher, client: Client, answer: bytes
) -> None:
    async def refuse(message: Msg) -> None:
        await message.respond(answer)

    await client.subscribe(OF_NO_STREAM, cb=refuse)
    await round_trip(client)
    with pytest.raises(NotAcknowledgedError):
        await publisher.publish([Outgoing(OF_NO_STREAM, "id", b"")], timeout_s=WAIT_S)


async def test_an_acknowledgement_does_not_count_for_another_message(publisher: Publisher, client: Client) -> None:
    async def acknowledge_twice(message: Msg) -> None:
        if message.data == b"1":
            await message.respond(b'{"stream":"S","seq":1}')
            await message.respond(b'{"stream":"S","seq":1}')

    await client.subscribe(OF_NO_STREAM, cb=acknowledge_twice)
    await round_trip(client)
    messages = [Outgoing(OF_NO_STREAM, f"{number}", f"{number}".encode()) for number in (1, 2)]
    with pytest.raises(TimeoutError):
        await publisher.publish(messages, timeout_s=0.3)


@pytest.mark.heavy
async def test_a_late_acknowledgement_does_not_count_for_the_next_batch(publisher: Publisher, client: Client) -> None:
    held: list[Msg] = []

    async def keep(message: Msg) -> None:
        held.append(message)

    await client.subscribe(OF_NO_STREAM, cb=keep)
    await round_trip(client)
    messages = [Outgoing(OF_NO_STREAM, "id", b"")]
    with pytest.raises(TimeoutError):
        await publisher.publish(messages, timeout_s=0.1)
    async with asyncio.timeout(WAIT_S):
        while not held:  # noqa: ASYNC110 - there is nothing to await
            await asyncio.sleep(0.01)
    again = asyncio.create_task(publisher.publish(messages, timeout_s=0.5))
    await held[0].respond(b'{"stream":"S","seq":1}')
    with pytest.raises(TimeoutError):
        await again


@pytest.mark.heavy
@pytest.mark.parametrize("turns", [0, 1, pytest.param(2, marks=pytest.mark.servers), 3, 5, 8])
async def test_a_broken_connection_never_leaves_the_end_of_a_batch_before_its_beginning(
    management: Management, client: Client, turns: int
) -> None:
    tenant = unique("t")
    messages = outgoing(tenant, 1000)
    async with TcpProxy(management.addresses.management_nats_url) as proxy:
        bus = Bus(proxy.url, service="management")
        bus.start()
        await bus.connected()
        async with publisher_on(bus) as publisher:
            publishing = asyncio.create_task(publisher.publish(messages, timeout_s=WAIT_S))
            for _ in range(turns):
                await asyncio.sleep(0)
            await proxy.cut()
            await asyncio.sleep(0.1)
            await proxy.mend()
            with contextlib.suppress(NatsError, TimeoutError):  # none if the cut came too late
                await publishing
        await eventually_here(lambda: bus.connections > 1)  # a publisher is bound to its connection
        async with publisher_on(bus) as publisher:
            await publisher.publish(messages, timeout_s=WAIT_S)
        await bus.stop()
    assert await stored(client, tenant) == [message.payload for message in messages]


@pytest.mark.servers
async def test_two_events_of_one_aggregate_are_never_in_flight_together(servers: ServerAddresses) -> None:
    """If the stream refused only the older one, its retry would be stored after the newer one and replace it.

    The relay starts with a watermark, and ends each batch with one.
    """
    names = ("o1", "o2", "o1", "o1", "o2", "o3")
    changes = [("organization", [name], "updated", OrganizationState(id=name)) for name in names]
    async with TemplateSource(servers) as source:
        revision = await source.record_all(changes)
        messages = await captured(servers.subscriber_nats_url, source.tenant_id, until=revision)

    events = [msgspec.json.decode(message.data, type=CloudEvent) for message in messages]
    batches = [[], ["o1", "o2"], ["o1"], ["o1", "o2", "o3"]]
    assert [event.subject for event in events] == [name for batch in batches for name in [*batch, "template"]]


@pytest.mark.heavy
async def test_a_subscriber_gets_what_was_stored_after_the_end_of_its_batch(servers: ServerAddresses) -> None:
    """If the leader of a stream changes during an attempt, the end of a batch may be stored without its beginning."""
    async with TemplateSource(servers) as source, connected(servers, "template") as template:
        tenant_id = source.tenant_id
        before = await source.record("organization", ["o1"], "created", OrganizationState(id="o1"))
        first, second = (source.granted("o1", member_id, "a") for member_id in ("u1", "u2"))
        event = CloudEvent(
            id=f"{tenant_id}:template:{before + 2}",
            source="/template",
            type="member-permissions.updated",
            subject="o1/u2",
            time="2026-01-01T00:00:00.000+00:00",
            tenantid=tenant_id,
            revision=before + 2,
            data=msgspec.Raw(msgspec.json.encode(second)),
        )
        subject = event_subject("template", tenant_id, "member-permissions", "o1", "u2")
        payload = msgspec.json.encode(event)
        await template.jetstream().publish(subject, payload, headers={"Nats-Msg-Id": event.id})
        changes = [("member-permissions", ("o1", state.member_id), "updated", state) for state in (first, second)]
        assert await source.record_all(changes) == event.revision
        async with asyncio.timeout(WAIT_S), EventBus(servers.subscriber_nats_url, tenant_id=tenant_id) as bus:
            heard = permission_changes(bus, since="beginning")
            assert [(await anext(heard)).member_id for _ in range(2)] == ["u2", "u1"]
            await heard.aclose()


@pytest.mark.parametrize("is_known", [True, False], ids=["in the database", "lost"])
async def test_an_event_that_has_no_watermark_yet_counts_as_published(
    servers: ServerAddresses, *, is_known: bool
) -> None:
    """The relay was killed between the two, or a republication goes on: its watermark comes at the end."""
    async with TemplateSource(servers) as source, connected(servers, "template") as template:
        revision = await source.record("organization", ["o1"], "created", OrganizationState(id="o1"))
        event = CloudEvent(
            id=f"{source.tenant_id}:template:{revision + 1}",
            source="/template",
            type="organization.created",
            subject="o2",
            time="2026-01-01T00:00:00.000+00:00",
            tenantid=source.tenant_id,
            revision=revision if is_known else revision + 1,
            data=msgspec.Raw(msgspec.json.encode(OrganizationState(id="o2"))),
        )
        subject = event_subject("template", source.tenant_id, "organization", "o2")
        await template.jetstream().publish(subject, msgspec.json.encode(event))
        assert await source.may_change() == is_known
        recorded = source.record("organization", ["o3"], "created", OrganizationState(id="o3"))
        with contextlib.nullcontext() if is_known else pytest.raises(StoreUnavailable):
            await recorded
