"""Follows a stream in the background: applies it batch by batch, and resumes after every interruption."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.snapshot import Snapshot
from identity_common.bus.stream_reader import Batch, ReadingInterrupted, StreamPosition, StreamReader

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_RETRY_S: Final = 0.25


class StreamFollower:
    """Applies the messages of one stream that match the given subjects, in order, until ``stop``.

    A stream that was lost and recreated is read from its beginning. With a snapshot, whatever the stream has dropped is
    read from there, and then the stream.

    Args:
        bus: The connection.
        stream: Name of the stream.
        subjects: Of the messages.
        apply: Applies a batch; takes the batch and the position after which it was read, returns the position applied
            afterwards. A batch that a failure interrupts is applied again. If the returned position is before that of
            the batch, or in another incarnation of the stream, a shared store was emptied or has failed over, and
            reading resumes at ``position``.
        snapshot: Name of a stream that keeps the last message of each of these subjects.
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
        snapshot: str | None = None,
        position: Callable[[], Awaitable[StreamPosition]] | None = None,
        name: str,
        log: "FilteringBoundLogger",
        failed: str,
        interrupted: str,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        self._bus = bus
        self._reader = StreamReader(bus, stream, subjects, reader=name)
        self._snapshot = None if snapshot is None else Snapshot(bus, stream)
        self._snapshot_reader = StreamReader(bus, snapshot or stream, subjects, reader=name)
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
        position: StreamPosition | None = await self._position()
        while position is not None:
            position = await self._read_from(position)

    async def _read_from(self, position: StreamPosition) -> StreamPosition | None:
        """Read one stream on; return where to go on in the other one, None if the applied position falls back."""
        snapshot = self._snapshot if self._snapshot and await self._snapshot.is_needed(position) else None
        reader = self._reader if snapshot is None else self._snapshot_reader
        incarnation = await reader.identity()
        self._read = position.within(incarnation)
        is_same = False
        async with contextlib.aclosing(reader.read_after(self._read.sequence)) as batches:
            async for read in batches:
                batch = read
                if not is_same:
                    # The stream may have been recreated before the consumer was created.
                    is_same = await reader.identity() == incarnation
                    if not is_same:
                        return None
                if snapshot is not None and read.caught_up:
                    batch = read._replace(caught_up=False, goes_on_at=await snapshot.goes_on_at(batch))
                applied, end = await self._apply(batch, self._read), batch.end(self._read)
                if applied != end and applied.is_behind(self._read):
                    return None
                self._read = end
                if batch.goes_on_at is not None:
                    return end
        return None
