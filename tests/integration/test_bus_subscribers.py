"""What template-service publishes reaches subscribers, also after a restart and after losses."""

import asyncio
from collections.abc import Iterator

import pytest
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from identity_common.wire.events import STREAM_EVENTS
from provision import ServerAddresses
from tests.support.bus_clients import EVENTUALLY_S, SERVICES, connected, make_streams
from tests.support.own_servers import OwnServers


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServers]:
    with OwnServers(tmp_path_factory.mktemp("isolation")) as own:
        yield own


@pytest.mark.heavy
class TestSubscribersReadWhatTemplateServicePublishes:
    @staticmethod
    async def publish(addresses: ServerAddresses, *subjects: str) -> None:
        async with connected(addresses, "template") as template:
            for subject in subjects:
                await template.jetstream().publish(subject, subject.encode())

    @staticmethod
    async def read(addresses: ServerAddresses, *, until: str) -> list[str]:
        """Return the subjects of one tenant that a subscriber reads up to this one; retry until the stream exists."""
        tenant = until.split(".")[1]
        async with connected(addresses, "subscriber") as subscriber, asyncio.timeout(EVENTUALLY_S):
            while True:
                try:
                    reading = await subscriber.jetstream().pull_subscribe(f"identity.{tenant}.>", stream=STREAM_EVENTS)
                    heard: list[str] = []
                    while until not in heard:
                        heard += [message.subject for message in await reading.fetch(100, timeout=1)]
                except (NotFoundError, NatsError, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    return heard

    async def test_if_the_subscriber_starts_first(self, own: OwnServers) -> None:
        reading = asyncio.create_task(self.read(own.addresses, until="identity.first.role.1"))
        await asyncio.sleep(0.2)
        for service in SERVICES:
            await make_streams(own.addresses, service)
        await self.publish(own.addresses, "identity.first.role.1")
        assert await reading == ["identity.first.role.1"]

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
