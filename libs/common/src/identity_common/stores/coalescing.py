"""Coalescing: items that concurrent requests submit in one tick of the event loop are processed as one batch."""

import asyncio
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Batcher(ABC, Generic[Item, Result]):
    """Collects the items of one tick of the event loop."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._is_scheduled = False

    def submit(self, item: Item) -> "asyncio.Future[Result]":
        """Return the future result of an item; it is processed even if the future is never awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if not self._is_scheduled:
            self._is_scheduled = self._schedule(loop)
        return future

    @abstractmethod
    def _schedule(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Schedule the processing of the waiting items at the end of this tick; return whether that was possible."""


def _resolve(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    """Resolve the future of an item, unless it was cancelled; a failure that is never awaited stays silent."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()
    else:
        future.set_result(result)


class Coalescer(_Batcher[Item, Result]):
    """Processes the items of one tick of the event loop in one call.

    Under load this divides the cost of a round trip by the size of the batch; a single item costs a full round trip.

    Args:
        process: Returns a result for each item, in their order; an exception among them is raised to the submitter of
            its item. An exception that it raises itself is raised to all of them.
        max_concurrent: Maximum number of concurrent calls; items submitted meanwhile wait for the next call.
        max_batch: Maximum number of items in one call.
    """

    def __init__(
        self,
        process: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        max_concurrent: int = sys.maxsize,
        max_batch: int = sys.maxsize,
    ) -> None:
        super().__init__()
        self._process = process
        self._max_concurrent = max_concurrent
        self._max_batch = max_batch
        self._numbers = itertools.count()
        self._calls: dict[int, asyncio.Task[None]] = {}

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> bool:
        if len(self._calls) >= self._max_concurrent:
            return False
        number = next(self._numbers)
        self._calls[number] = loop.create_task(self._call(number))  # begins at the end of this tick
        return True

    async def _call(self, number: int) -> None:
        batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
        self._is_scheduled = self._schedule_rest()
        try:
            await self._process_batch(batch)
        finally:
            del self._calls[number]
            if not self._is_scheduled:
                self._is_scheduled = self._schedule_rest()

    def _schedule_rest(self) -> bool:
        return bool(self._waiting) and self._schedule(asyncio.get_running_loop())

    async def _process_batch(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._process([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - every error belongs to the submitters
            for _, future in batch:
                _resolve(future, error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            _resolve(future, result)


class SameTurn(_Batcher[Item, Result]):
    """Processes the items of one tick of the event loop one right after the other.

    For computations that run through a lot of code: the second one finds warm caches and costs half of the first.

    Args:
        process: Returns the result of an item. An exception is raised to the submitter of the item.
    """

    def __init__(self, process: Callable[[Item], Result]) -> None:
        super().__init__()
        self._process = process

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> bool:
        loop.call_soon(self._process_all)
        return True

    def _process_all(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_scheduled = False
        for item, future in batch:
            if future.done():  # its request was cancelled
                continue
            try:
                result: Result | Exception = self._process(item)
            except Exception as error:  # noqa: BLE001 - every error belongs to the submitter
                result = error
            _resolve(future, result)
