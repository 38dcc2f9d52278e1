"""Read-your-writes: what a request reads includes what its caller has seen, and what was published before it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from identity_common.bus.connection import Bus
from identity_common.failures import UNKNOWN_RELATION, Conflict, NotYetThere
from identity_common.projection.catch_up import CatchUp
from identity_common.projection.freshness import Freshness
from identity_common.revisions import Source

T = TypeVar("T")


def not_arrived() -> NotYetThere:
    """Return the failure of a revision that the caller awaits and that has not arrived."""
    return NotYetThere(
        "temporarily_unavailable",
        "The awaited revision has not arrived yet. Try again later.",
        why="the awaited revision has not arrived yet",
    )


class FreshReads:
    """Lets requests wait until the parts of a projection are fresh enough for them.

    Args:
        bus: Tells the heads of the streams.
        parts: The parts that requests read.
        tenant_id: The tenant.
        sources: The sources that the parts receive.
        revision_wait_s: How long a request waits for the revisions that it requires.
        catch_up_wait_s: How long a request with an unknown id waits to catch up with the bus.
        further: Other parts that must have seen the revisions that a request awaits; they do not catch up.
    """

    def __init__(
        self,
        bus: Bus,
        parts: Sequence[Freshness],
        *,
        tenant_id: str,
        sources: Sequence[Source],
        revision_wait_s: float,
        catch_up_wait_s: float,
        further: Sequence[Freshness] = (),
    ) -> None:
        self._awaited_parts = (*parts, *further)
        self._revision_wait_s = revision_wait_s
        self._catch_ups = {
            source: CatchUp(bus, source, parts, tenant_id=tenant_id, wait_s=catch_up_wait_s) for source in sources
        }

    def deadline(self) -> float:
        """Return until when a request that arrives now waits for revisions, as of ``time.monotonic``."""
        return time.monotonic() + self._revision_wait_s

    def has_seen(self, awaited: Mapping[str, int]) -> bool:
        """Return whether all parts, ``further`` included, have seen these revisions."""
        return not awaited or all(part.has_seen(awaited) for part in self._awaited_parts)

    async def wait_for(self, awaited: Mapping[str, int], *parts: Freshness) -> None:
        """Wait until these parts, or all, have seen the awaited revisions.

        Raises:
            NotYetThere: They have not in time.
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        deadline = self.deadline()
        for part in parts or self._awaited_parts:
            if not await part.reach(awaited, deadline=deadline):
                raise not_arrived()

    async def catch_up(self, *sources: Source) -> None:
        """Wait until the parts have seen the heads of the streams as of this call, or for ``catch_up_wait_s``.

        Args:
            sources: The sources of the changes; management's by default.

        Raises:
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        sources = sources or ("management",)
        await asyncio.gather(*(self._catch_ups[source].catch_up() for source in sources))

    async def with_catch_up(self, use_case: Callable[[], Awaitable[T]]) -> T:
        """Run a use case; if it refuses an unknown id, catch up and run it once more."""
        try:
            return await use_case()
        except Conflict as failure:
            if failure.code != UNKNOWN_RELATION:
                raise
        await self.catch_up()
        return await use_case()
