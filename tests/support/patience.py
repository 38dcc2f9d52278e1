"""Waiting for what must come to hold by itself; how long it may take says nothing about how fast it should be."""

import asyncio
import time
from collections.abc import Callable

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
