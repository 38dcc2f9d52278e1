"""The watermark of each source that a part of a projection has seen, and waiting for a later one."""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from identity_common.failures import TemporarilyUnavailable
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.revisions import SOURCES, Source

_MAX_WAITERS: Final = 2_000


class Freshness:
    """The watermark of each source that one part has seen, and when it last received anything from the bus.

    Attributes:
        observe_age: Gets the age of changes as they are applied, in seconds, if it is set.

    Args:
        sources: The sources that the part receives, all by default; a revision of another one counts as seen.
        max_waiters: How many requests may wait for each source.
    """

    def __init__(self, *sources: Source, max_waiters: int = _MAX_WAITERS) -> None:
        self._seen = {source: Progress(max_waiters=max_waiters) for source in sources or SOURCES}
        self._received_at: dict[str, float] = dict.fromkeys(self._seen, time.monotonic())
        self.observe_age: Callable[[float], object] | None = None

    def applied(self, changed_at: str) -> None:
        """Record that a change has been applied.

        Args:
            changed_at: The time of the change, RFC 3339.
        """
        if self.observe_age is not None:
            self.observe_age(max(0.0, time.time() - datetime.fromisoformat(changed_at).timestamp()))

    def received(self, source: Source) -> None:
        """Record that something of a source arrived from the bus, heartbeats included."""
        self._received_at[source] = time.monotonic()

    @property
    def silence_s(self) -> float:
        """Seconds since anything arrived from the bus, of the source that has been silent the longest."""
        return time.monotonic() - min(self._received_at.values())

    def advance(self, source: str, revision: int) -> None:
        """Record a watermark: every event of the source up to it has been applied."""
        if source in self._seen:
            self._seen[source].advance(revision)

    def seen(self, source: str) -> int:
        """Return the highest revision seen; -1 before any watermark."""
        return self._seen[source].value

    @property
    def revisions(self) -> dict[str, int]:
        """The highest revision seen of each source that has sent a watermark."""
        return {source: seen.value for source, seen in self._seen.items() if seen.value >= 0}

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """Return whether everything up to these revisions has been applied."""
        for source, revision in revisions.items():
            seen = self._seen.get(source)
            if seen is not None and seen.value < revision:
                return False
        return True

    async def reach(self, revisions: Mapping[str, int], *, deadline: float) -> bool:
        """Wait until everything up to these revisions has been applied; return false after the deadline.

        Args:
            revisions: By source.
            deadline: As of ``time.monotonic``, in seconds.

        Raises:
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        try:
            for source, revision in revisions.items():
                seen = self._seen.get(source)
                if seen is None:
                    continue
                if not await seen.reach(revision, timeout_s=max(0.0, deadline - time.monotonic())):
                    return False
        except TooManyWaitersError:
            raise TemporarilyUnavailable(why="too many requests are waiting for a change to arrive") from None
        return True


def highest(*several: Mapping[str, int]) -> dict[str, int]:
    """Return the highest revision of each source among these."""
    named = [each for each in several if each]
    if len(named) < 2:
        return dict(*named)
    return {source: max(each.get(source, 0) for each in named) for source in _sources(named)}


def _sources(several: Iterable[Mapping[str, int]]) -> set[str]:
    return {source for each in several for source in each}
