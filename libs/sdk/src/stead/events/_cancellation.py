"""Background tasks: how they are ended for certain."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_REPEAT_S: Final = 0.05


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks and return when they have ended; a cancellation that was lost is repeated.

    ``asyncio.wait_for`` of Python 3.11, which the driver of the bus uses, loses a cancellation that comes in the turn
    in which what it waits for happens.
    """
    pending = {task for task in tasks if task is not None}
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=_REPEAT_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # it was told to end: how it ended is of no interest
