"""Turns: how much of a costly kind of work is done at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from identity_common.failures import TemporarilyUnavailable


class Turns:
    """Lets a few tasks work at once; others wait for a short time, and are then refused.

    Args:
        at_once: How many work at once.
        wait_s: How long the others wait.
    """

    def __init__(self, at_once: int, *, wait_s: float) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._wait_s = wait_s

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """Run the body in turn.

        Raises:
            TemporarilyUnavailable: Too many others are at work.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire()
        except TimeoutError:
            raise TemporarilyUnavailable(
                "Too many requests of this kind are being processed. Try again later.", why="too many at once"
            ) from None
        try:
            yield
        finally:
            self._turns.release()
