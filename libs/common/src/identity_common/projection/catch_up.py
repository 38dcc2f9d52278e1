"""Catching up with the bus before an unknown id is refused: it may have been created a moment ago."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from nats.errors import Error as NatsError

from identity_common.background import SharedRun
from identity_common.bus.connection import Bus
from identity_common.bus.streams import published_revision
from identity_common.failures import TemporarilyUnavailable
from identity_common.projection.freshness import Freshness
from identity_common.revisions import Source

CATCH_UP_WAIT_S: Final = 0.5
"""Far longer than an event is under way while the bus is well; a refusal may wait this long while it is not."""

_MAX_WAITING: Final = 2_000


class CatchUp:
    """Waits for the current head of one source's stream.

    Args:
        bus: Tells the head of the stream.
        source: The source of the changes.
        parts: The parts that must have seen them.
        tenant_id: The tenant.
        wait_s: The maximum wait of a request, in seconds.
    """

    def __init__(self, bus: Bus, source: Source, parts: Sequence[Freshness], *, tenant_id: str, wait_s: float) -> None:
        self._bus = bus
        self._source: Source = source
        self._parts = parts
        self._tenant_id = tenant_id
        self._wait_s = wait_s
        self._runs = SharedRun(self._run, name=f"catch-up-{source}")
        self._waiting = 0

    async def catch_up(self) -> None:
        """Wait until the parts have seen the head of the stream as of this call, or for ``wait_s``.

        Callers that arrive during a run share the next one: the current one may have read the head too early.

        Raises:
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        if not self._bus.is_connected:
            return  # the head cannot be read: answer from what is known
        if self._waiting >= _MAX_WAITING:
            raise TemporarilyUnavailable(why="too many requests are waiting for the directory")
        self._waiting += 1
        try:
            await asyncio.wait((self._runs.next(),), timeout=self._wait_s)
        finally:
            self._waiting -= 1

    async def _run(self) -> None:
        deadline = time.monotonic() + self._wait_s
        try:
            async with asyncio.timeout(self._wait_s):
                head = await published_revision(self._bus.jetstream(), self._source, self._tenant_id)
            for part in self._parts:
                await part.reach({self._source: head}, deadline=deadline)
        except (NatsError, OSError, TimeoutError, TemporarilyUnavailable):
            return
