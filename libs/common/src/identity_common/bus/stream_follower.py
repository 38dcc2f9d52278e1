"""Follows a stream in the background: applies it batch by batch, and resumes after every interruption."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from nats.errors import Error as NatsError
from structlog.typing import FilteringBoundLogger

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, ReadingInterrupted, StreamPosition, StreamReader

_RETRY_S: Final = 0.25


class StreamFollower:
    """Applies the messages of one stream that match the given subjects, in order, until ``stop``.

    A stream that was lost and recreated is read from its beginning.

    Args:
        bus: The connection.
        stream: Name of the stream.
        subjects: Of the messages.
        apply: Applies a batch; takes the batch and the position after which it was read, returns the position applied
            afterwards. A batch that a failure interrupts is applied again. If the returned position is before that of
            the batch, or in another incarnation of the stream, a shared store was emptied or has failed over, and
            reading resumes at ``position``.
        position: Returns the position to read after; by default the end of the last batch that this follower applied.
        name: Of the task, and of the spans of processing messages.
        log: Receives a line for every interruption.
        failed: Event of an error that is not expected, with a traceback.
        interrupted: Event of the warning for an expected exception; those of the bus always are.
        expected: Further exceptions that an operator should know of but a developer need not.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        subjects: Sequence[str],
        apply: Callable[[Batch, StreamPosition], Awaitable[StreamPosition]],
        *,
        position: Callable[[], Awaitable[StreamPosition]] | None = None,
        name: str,
        log: FilteringBoundLogger,
        failed: str,
        interrupted: str,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        self._bus = bus
        self._reader = StreamReader(bus, stream, subjects, reader=name)
        self._apply = apply
        self._position = position or self._own_position
        self._read = StreamPosition()
        self._loop = BackgroundLoop(
            self._follow,
            name=name,
            pause_s=_RETRY_S,
            log=log.bind(stream=stream),
            failed=failed,
            interrupted=interrupted,
            expected=(NatsError, OSError, TimeoutError, *expected),
            resume_on=(ReadingInterrupted,),
        )

    def start(self) -> None:
        """Begin to follow, in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop following."""
        await self._loop.stop()

    async def _own_position(self) -> StreamPosition:
        return self._read

    async def _follow(self) -> None:
        """Read on until an error occurs, or until the applied position falls back."""
        await self._bus.connected()
        incarnation = await self._reader.identity()
        self._read = (await self._position()).within(incarnation)
        is_same = False
        async with contextlib.aclosing(self._reader.read_after(self._read.sequence)) as batches:
            async for batch in batches:
                if not is_same:
                    # The stream may have been recreated before the consumer was created.
                    is_same = await self._reader.identity() == incarnation
                    if not is_same:
                        return
                if (await self._apply(batch, self._read)).is_behind(self._read):
                    return
                self._read = batch.end(self._read)
