"""The records of the feed in memory: 24 bytes each, and a look-up that reads no more than a few of them.

Sorted records with an index by the first bits of their entries, and a dictionary of those that arrived later. Entries
are hashes, evenly spread, so a part of the index has few of them. A million records take 32 MB.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable
from typing import Final

from stead.not_valid.entries import ENTRY_BYTES, RECORD, NotValid, unpack
from stead.not_valid.messages import InvalidFeed

_TAIL: Final = 20_000
_MIN_BITS: Final = 8
_MAX_BITS: Final = 24


class Records:
    """Records by entry; the later of two records of an entry counts."""

    def __init__(self, records: bytes | bytearray = b"") -> None:
        """Index the packed records of a snapshot.

        Raises:
            InvalidFeed: They are not in the order of their entries.
        """
        self._tail: dict[bytes, NotValid] = {}
        self._load(records)

    def __len__(self) -> int:
        return len(self._records) // RECORD.size + len(self._tail)

    def not_before(self, entry: bytes) -> int:
        """Return the time before which nothing of an entry is valid; 0 if the feed does not name it."""
        later = self._tail.get(entry)
        if later is not None:
            return later.not_before
        place = int.from_bytes(entry[:4], "big") >> self._shift
        first, end = self._places[place], self._places[place + 1]
        if first == end:
            return 0
        found = self._records.find(entry, first * RECORD.size, end * RECORD.size)
        while found >= 0 and found % RECORD.size:  # the bytes of two records
            found = self._records.find(entry, found + 1, end * RECORD.size)
        if found < 0:
            return 0
        return int.from_bytes(self._records[found + ENTRY_BYTES : found + ENTRY_BYTES + 4], "big")

    def add(self, records: bytes) -> None:
        """Add packed records."""
        self._tail.update((record.entry, record) for record in unpack(records))

    def has_later(self, entries: Iterable[bytes]) -> bool:
        """Return whether a record of one of these entries arrived after the snapshot."""
        return not self._tail.keys().isdisjoint(entries)

    @property
    def is_untidy(self) -> bool:
        """Whether ``tidied`` is worth its time."""
        return len(self._tail) > _TAIL

    def tidied(self, *, now: float) -> Records:
        """Return the same records in the most compact form, without those that can be forgotten.

        Copies them one by one: a list of a million small objects would take more memory than the records.
        """
        tail = self._tail
        kept = (each for each in unpack(self._records) if each.forget_at > now and each.entry not in tail)
        later = sorted(each for each in tail.values() if each.forget_at > now)
        packed = bytearray()
        for record in heapq.merge(kept, later):
            packed += record.pack()
        return Records(packed)

    def _load(self, records: bytes | bytearray) -> None:
        count = len(records) // RECORD.size
        bits = min(max(_MIN_BITS, count.bit_length()), _MAX_BITS)
        shift = 32 - bits
        places = array("I", bytes(4 * ((1 << bits) + 1)))
        number = filled = 0
        earlier = b""
        for entry, _, _ in RECORD.iter_unpack(records):
            if entry <= earlier:
                raise InvalidFeed("the records of the snapshot are not sorted")
            earlier = entry
            place = int.from_bytes(entry[:4], "big") >> shift
            while filled < place:
                filled += 1
                places[filled] = number
            number += 1
        for later in range(filled + 1, len(places)):
            places[later] = number
        self._records, self._places, self._shift = records, places, shift
