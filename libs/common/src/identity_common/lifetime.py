"""Lifetimes: what was started is stopped, in reverse, whatever fails."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self

from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)


class Part(Protocol):
    """A part of a service that runs beside the requests."""

    def start(self) -> None:
        """Start it, without waiting."""

    async def stop(self) -> None:
        """Stop it; a no-op unless it was started."""


class Lifetime:
    """Starts the parts of a service, and stops those that were started when it ends.

    A part whose start or stop fails does not keep the others from being stopped.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    def start(self, *parts: Part) -> None:
        """Start parts, in this order; they stop in reverse."""
        for part in parts:
            self.at_end(part.stop)  # before it starts: it may fail halfway
            part.start()

    def at_end(self, stop: Callable[[], Awaitable[None]]) -> None:
        """Call this method at the end, before those that were added earlier."""
        self._stack.push_async_callback(_stopped, stop)

    async def end(self) -> None:
        """Stop everything that was started; more may be started afterwards."""
        await self._stack.aclose()


async def _stopped(stop: Callable[[], Awaitable[None]]) -> None:
    try:
        await stop()
    except Exception as error:
        _log.error("lifetime.stop-failed", kind=stop.__qualname__, error=type(error).__name__, exc_info=error)
        raise
