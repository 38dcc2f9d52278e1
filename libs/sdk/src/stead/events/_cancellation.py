"""Reliable cancellation of background tasks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_REPEAT_S: Final = 0.05


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and wait until they have ended; repeat a cancellation that gets lost.

    ``asyncio.wait_for`` in Python 3.11, which nats-py uses, swallows a cancellation that arrives in the same iteration
    of the event loop as the awaited result.
    """
    pending = {task for task in tasks if task is not None}
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_REPEAT_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # mark the exception as retrieved; the task was told to end
