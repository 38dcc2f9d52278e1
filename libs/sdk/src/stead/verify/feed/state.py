"""A reader's state of the feed, and whether it is fresh. No I/O; written by one thread, read by any."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from stead.verify.access_tokens import AccessToken
from stead.verify.feed.entries import Kind, Lookup, lookups_of
from stead.verify.feed.messages import InvalidFeed, Message, Snapshot, records_of
from stead.verify.feed.records import Records

_CACHED: Final = 4096


class Gap(Exception):  # noqa: N818 - the name reads as the answer
    """The feed continues after a point that this reader has not reached: it needs a snapshot."""


class _Judged(NamedTuple):
    """A token that was looked up.

    Attributes:
        lookups: What can end the token.
        entries: Those of all lookups.
        records: Where it was looked up; the verdict holds until they are replaced or get a record of an entry.
        verdict: The kind of the record that made it invalid; None if it is valid.
    """

    lookups: list[Lookup]
    entries: list[bytes]
    records: Records
    verdict: Kind | None


class FeedState:
    """The records, the position, and the time of the last heartbeat.

    Args:
        stale_after_s: Seconds after the last heartbeat from which the feed is not fresh.
        clock_leeway_s: Tolerated difference between the clocks of issuer and reader, in seconds.
    """

    def __init__(
        self,
        *,
        stale_after_s: float,
        clock_leeway_s: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stale_after_s = stale_after_s
        self._clock_leeway_s = clock_leeway_s
        self._clock = clock
        self._monotonic = monotonic
        self._records = Records()
        self._epoch = self._sequence = -1
        self._signed_at = 0
        self._heard_at: float | None = None
        self._judged: dict[tuple[str, str, bool], _Judged] = {}

    @property
    def position(self) -> tuple[int, int] | None:
        """Epoch and sequence; None before the first snapshot."""
        return (self._epoch, self._sequence) if self._epoch >= 0 else None

    @property
    def progress(self) -> tuple[int, int, int]:
        """Increases with every new record, epoch or heartbeat."""
        return self._epoch, self._sequence, self._signed_at

    @property
    def age_s(self) -> float:
        """Seconds since the last heartbeat; infinite without one, and while something before it is missing."""
        heard_at = self._heard_at
        return math.inf if heard_at is None else self._monotonic() - heard_at

    @property
    def is_fresh(self) -> bool:
        """Whether a valid heartbeat came recently, and nothing before it is missing.

        By both clocks: the monotonic one stands still while a machine is suspended.
        """
        return self.age_s < self._stale_after_s and self._is_recent(self._signed_at)

    def __len__(self) -> int:
        return len(self._records)

    def load(self, snapshot: Snapshot, records: bytearray) -> None:
        """Replace everything with a snapshot; ``records`` is emptied.

        Raises:
            InvalidFeed: It is older than the state, or not sorted.
        """
        if (snapshot.epoch, snapshot.to) < (self._epoch, self._sequence):
            raise InvalidFeed("the snapshot is older than the known one")
        loaded = self._records.replaced(records)
        if snapshot.epoch != self._epoch:
            self._heard_at, self._signed_at = None, 0
        self._records, self._epoch, self._sequence = loaded, snapshot.epoch, snapshot.to

    def take(self, message: Message) -> None:
        """Continue with a message; one that brings nothing new is ignored.

        Raises:
            Gap: A message before it is missing.
            InvalidFeed: It is of an older epoch.
        """
        if message.epoch < self._epoch:
            raise InvalidFeed("the epoch is older than the known one")
        if message.epoch > self._epoch or message.from_ > self._sequence:
            self._heard_at = None
            raise Gap
        if message.to < self._sequence:
            return
        if message.to > self._sequence:
            self._records.add(records_of(message))
            self._sequence = message.to
            if self._records.needs_compaction:
                # not later than the last heartbeat: a clock that is wrong for a while must drop no record
                self._records = self._records.compacted(now=min(self._clock(), self._signed_at / 1000))
        self._record_heartbeat(message)

    def _record_heartbeat(self, message: Message) -> None:
        if message.time > self._signed_at and self._is_recent(message.time):
            self._signed_at = message.time
            self._heard_at = self._monotonic()

    def _is_recent(self, signed_at: int) -> bool:
        return abs(self._clock() - signed_at / 1000) < self._stale_after_s + self._clock_leeway_s

    def why_not_valid(self, token: AccessToken, *, stale_permissions: bool = False) -> Kind | None:
        """Return the kind of the record that ends a verified access token; None if there is none.

        Args:
            token: The token.
            stale_permissions: Whether permissions that it has lost since end it too (``permissions``).
        """
        key, records = (token.id, token.audience, stale_permissions), self._records
        judged = self._judged.get(key)
        if judged is None:
            lookups = lookups_of(token, stale_permissions=stale_permissions)
            entries = [entry for _, names in lookups for entry in names]
        elif judged.records is records and not records.has_later(judged.entries):
            return judged.verdict
        else:
            lookups, entries = judged.lookups, judged.entries
        verdict = _verdict(records, lookups)
        if len(self._judged) >= _CACHED:
            self._judged.clear()
        self._judged[key] = _Judged(lookups, entries, records, verdict)
        return verdict


def _verdict(records: Records, lookups: list[Lookup]) -> Kind | None:
    for own, names in lookups:
        if not records.lacks(names):
            for entry, kind in names.items():
                if own < records.not_before(entry):
                    return kind
    return None
