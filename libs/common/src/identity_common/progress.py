"""A number that only grows, and people waiting for it to be large enough."""

import asyncio
import heapq
import itertools

_order = itertools.count()


class TooManyWaitersError(Exception):
    """The bound on waiters is reached; refuse the request instead of piling up more."""


class Progress:
    """How far a source of changes has come, as seen from here.

    Waiters are woken in the order of what they wait for, so that one step costs only those that it satisfies.
    """

    def __init__(self, *, max_waiters: int = 10_000) -> None:
        self.value = -1
        self._max_waiters = max_waiters
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, value: int) -> None:
        """Take note that everything up to this value is there. A smaller value changes nothing."""
        self.value = max(self.value, value)
        while self._waiters and self._waiters[0][0] <= self.value:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    async def reach(self, value: int, *, timeout_s: float) -> bool:
        """Wait until the value is reached; return whether it was.

        Raises:
            TooManyWaitersError: When the bound on waiters is reached.
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
        finally:  # also when the caller is cancelled: its place must not stay taken
            if not future.done():
                future.cancel()
                self._waiters = [waiter for waiter in self._waiters if waiter[2] is not future]
                heapq.heapify(self._waiters)
