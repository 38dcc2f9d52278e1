"""Waiting for a condition that must come true; the timeout is generous, and not a performance requirement."""

import asyncio
import time
from collections.abc import Callable

from nats.aio.client import Client

WAIT_S = 60


def eventually(condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Return when the condition holds; fail after ``within_s``."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


async def eventually_here(condition: Callable[[], bool]) -> None:
    """Do the same without blocking this event loop."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.02)


async def round_trip(client: Client) -> None:
    """Wait until the server has processed everything that the client sent: messages and subscriptions.

    A flush overtakes data that is still waiting to be written; the second one comes after it.
    """
    await client.flush()
    await client.flush()
