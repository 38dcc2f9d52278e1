"""Waiting for a condition that must come true; the timeout is generous, and not a performance requirement."""

import asyncio
import time
from collections.abc import Callable

from nats.aio.client import Client

WAIT_S = 60


def eventually(condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Return when the condition holds; fail after ``within_s``."""
    began = time.monotonic()
    while not condition():
        time.sleep(_pause_s(time.monotonic() - began, within_s))


async def eventually_here(condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Do the same without blocking this event loop."""
    began = time.monotonic()
    while not condition():  # noqa: ASYNC110 - any condition, without an event
        await asyncio.sleep(_pause_s(time.monotonic() - began, within_s))


def _pause_s(waited_s: float, within_s: float) -> float:
    """Return the seconds until the condition is tried again: it may be expensive, so a long wait tries less often."""
    assert waited_s < within_s, "the condition did not come true"
    return max(0.02, waited_s / 20)


async def round_trip(client: Client) -> None:
    """Wait until the server has processed everything that the client sent: messages and subscriptions.

    A flush overtakes data that is still waiting to be written; the second one comes after it.
    """
    await client.flush()
    await client.flush()
