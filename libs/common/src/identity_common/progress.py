"""A monotonic counter that tasks can await."""

import asyncio
import heapq
import itertools

_order = itertools.count()


class TooManyWaitersError(Exception):
    """The maximum number of waiters is reached: refuse the request."""


class Progress:
    """How far a source of changes has been seen.

    Waiters are kept in a heap by the value they await, so that an advance touches only those that it satisfies.

    Attributes:
        value: The highest value so far; -1 before the first.
    """

    def __init__(self, *, max_waiters: int = 10_000) -> None:
        self.value = -1
        self._max_waiters = max_waiters
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, value: int) -> None:
        """Raise the value and wake waiters; a smaller value is a no-op."""
        self.value = max(self.value, value)
        while self._waiters and self._waiters[0][0] <= self.value:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    async def reach(self, value: int, *, timeout_s: float) -> bool:
        """Wait until the counter reaches a value; return whether it did in time.

        Raises:
            TooManyWaitersError: The maximum number of waiters is reached.
        """
        if value <= self.value:
            return True
        if len(self._waiters) >= self._max_waiters:
            raise TooManyWaitersError
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (value, next(_order), future))
        try:
            await asyncio.wait((future,), timeout=timeout_s)
            return future.done()
        finally:  # also if the caller is cancelled: a waiter must not leak
            if not future.done():
                future.cancel()
                self._waiters = [waiter for waiter in self._waiters if waiter[2] is not future]
                heapq.heapify(self._waiters)
