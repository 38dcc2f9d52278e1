"""How far management-service's events have been applied, and waiting until that is fresh enough for a request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from nats.errors import Error as NatsError

from identity_common.background import SharedRun
from identity_common.bus.connection import Bus
from identity_common.bus.streams import published_revision
from identity_common.failures import UNKNOWN_RELATION, Conflict, NotYetThere
from identity_common.progress import Progress, TooManyWaitersError

T = TypeVar("T")

CATCH_UP_WAIT_S: Final = 0.5
"""Far longer than an event is under way while the bus is well; a refusal may wait this long while it is not."""


def not_arrived() -> NotYetThere:
    """Return the failure of a revision that the caller awaits and that has not arrived."""
    return NotYetThere("temporarily_unavailable", "The awaited revision has not arrived yet. Try again later.")


class Directory:
    """How far the projection of management-service has come, and waiting for it.

    Args:
        bus: Tells the head of the stream.
        seen: Management's watermark in our tables.
        tenant_id: The tenant.
        revision_wait_s: How long a request waits for the revision that it requires.
        catch_up_wait_s: How long a request with an unknown id waits to catch up with the bus.
    """

    def __init__(
        self, bus: Bus, seen: Progress, *, tenant_id: str, revision_wait_s: float, catch_up_wait_s: float
    ) -> None:
        self._bus = bus
        self._seen = seen
        self._tenant_id = tenant_id
        self._revision_wait_s = revision_wait_s
        self._catch_up_wait_s = catch_up_wait_s
        self._runs = SharedRun(self._run, name="catch-up")

    def has_seen(self, awaited: Mapping[str, int]) -> bool:
        """Whether management's awaited revision has arrived."""
        return self._seen.value >= awaited.get("management", -1)

    async def lag(self) -> int:
        """Return how many published revisions of management-service have not arrived yet.

        Raises:
            nats.errors.Error: The bus does not answer.
        """
        head = await published_revision(self._bus.jetstream(), "management", self._tenant_id)
        return max(0, head - self._seen.value)

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait until management's awaited revision has arrived.

        Raises:
            ApiError: 503 when it does not arrive in time.
        """
        try:
            arrived = await self._seen.reach(awaited.get("management", -1), timeout_s=self._revision_wait_s)
        except TooManyWaitersError:
            arrived = False
        if not arrived:
            raise not_arrived()

    async def catch_up(self) -> None:
        """Wait until everything has arrived that was in the stream at the call, at most ``catch_up_wait_s``."""
        if not self._bus.is_connected:
            return  # without a bus there is nothing to catch up with
        await asyncio.wait((self._runs.next(),), timeout=self._catch_up_wait_s)

    async def with_catch_up(self, use_case: Callable[[], Awaitable[T]]) -> T:
        """Run a use case; if it refuses an unknown id, catch up and run it once more.

        Raises:
            ApiError: The refusal of the use case.
        """
        try:
            return await use_case()
        except Conflict as failure:
            if failure.code != UNKNOWN_RELATION:
                raise
        await self.catch_up()
        return await use_case()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._catch_up_wait_s):
                head = await published_revision(self._bus.jetstream(), "management", self._tenant_id)
            await self._seen.reach(head, timeout_s=self._catch_up_wait_s)
        except (NatsError, OSError, TimeoutError, TooManyWaitersError):
            return
