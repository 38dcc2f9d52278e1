"""Waiting for what must come to hold by itself; how long it may take says nothing about how fast it should be."""

import asyncio
import time
from collections.abc import Callable

from nats.aio.client import Client

PATIENCE_S = 60


def eventually(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not come to hold by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold by itself"
        time.sleep(0.02)


async def eventually_here(condition: Callable[[], bool]) -> None:
    """Do the same while this event loop goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to hold by itself"
        await asyncio.sleep(0.02)


async def round_trip(client: Client) -> None:
    """Wait until the server has dealt with everything that the client sent: messages, and whom it listens to.

    A flush overtakes what still waits to be written; the second one comes behind it.
    """
    await client.flush()
    await client.flush()
