"""Clients of the bus, each with the rights of one user."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig

from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams
from provision import ServerAddresses

SERVICES = ("management", "token", "template")
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
                await asyncio.sleep(0.02)  # a client that has just ended refuses at once, and the loop must notice it
    finally:
        await bus.stop()


NAME = "isolation-attempt"


@asynccontextmanager
async def consumer(jetstream: JetStreamContext, stream: str, config: ConsumerConfig) -> AsyncIterator[None]:
    """Create a consumer for the time of the body."""
    await jetstream.add_consumer(stream, config)
    yield
    await asyncio.sleep(SETTLED_S)
    await jetstream.delete_consumer(stream, config.name or "")
