"""The records of the feed in memory: 24 bytes each, with a lookup that reads only a few of them.

The records are sorted, in 256 parts by the first byte of their entries. Each part has an index over the next bits, and
a filter. Records that arrive later are in a dictionary until they are merged. Entries are hashes, so the parts are
equally large. They are replaced one by one, so that merging needs no second copy of all records.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from stead.verify.feed.entries import ENTRY_BYTES, RECORD, Names, NotValid, unpack
from stead.verify.feed.messages import InvalidFeed

_TAIL: Final = 20_000
_PARTS: Final = 256
_SIZE: Final = RECORD.size
_NUMBER_BYTES: Final = 4
_MAX_BITS: Final = 16
_HALF_WORD: Final = 1 << 16
_FILTERED: Final = 1_000
"""A part with fewer records has no filter: the processor caches it anyway."""
_FILTER_BYTES: Final = 4096
_NO_FILTER: Final = b"\xff" * _FILTER_BYTES
_numbers: Final = itertools.count()


class Records:
    """Records by entry; the later of two records of an entry counts."""

    def __init__(self, *, parts: list[_Part] | None = None) -> None:
        self._number = next(_numbers)
        self._tail: dict[bytes, NotValid] = {}
        self._parts = [_Part.indexed(b"", byte=byte) for byte in range(_PARTS)] if parts is None else parts

    def __len__(self) -> int:
        return sum(part.size for part in self._parts) + len(self._tail)

    def not_before(self, entry: bytes) -> int:
        """Return the time before which nothing of an entry is valid; 0 if the feed does not name it."""
        later = self._tail.get(entry)
        if later is not None:
            return later.not_before
        records, places, shift, present = self._parts[entry[0]]
        following = entry[1] << 8 | entry[2]
        if not present[following >> 4] >> (following >> 1 & 7) & 1:
            return 0
        place = following >> shift
        first, end = places[place] * _SIZE, places[place + 1] * _SIZE
        found = records.find(entry, first, end)
        while found >= 0 and (found - first) % _SIZE:  # a match across two records
            found = records.find(entry, found + 1, end)
        if found < 0:
            return 0
        number = found + ENTRY_BYTES
        return int.from_bytes(records[number : number + _NUMBER_BYTES], "big")

    def add(self, records: bytes) -> None:
        """Add packed records."""
        self._tail.update((record.entry, record) for record in unpack(records))

    def has_later(self, entries: Iterable[bytes]) -> bool:
        """Return whether a record of one of these entries arrived after the snapshot."""
        return not self._tail.keys().isdisjoint(entries)

    def lacks(self, names: Names) -> bool:
        """Return whether no record has one of these entries; those that the snapshot lacks are looked up once."""
        if self.has_later(names):
            return False
        if names.absent_from != self._number:
            if any(map(self.not_before, names)):
                return False
            names.absent_from = self._number
        return True

    @property
    def needs_compaction(self) -> bool:
        """Whether enough records have arrived for ``compacted``."""
        return len(self._tail) > _TAIL

    def replaced(self, records: bytearray) -> Records:
        """Return the packed records of a later snapshot; the argument is emptied.

        The parts are indexed one by one, and replaced in this object too.

        Raises:
            InvalidFeed: They are not in the order of their entries.
        """
        count = len(records) // _SIZE
        for byte in reversed(range(_PARTS)):
            first = _SIZE * bisect_left(range(count), byte, key=lambda number: records[number * _SIZE])
            with memoryview(records) as view:
                part = bytes(view[first:])
            self._parts[byte] = _Part.indexed(part, byte=byte)
            del records[first:]
            count = first // _SIZE
        return Records(parts=self._parts)

    def compacted(self, *, now: float) -> Records:
        """Return the records with those that arrived later merged in, without those that can be forgotten.

        The parts are replaced in this object too; it keeps what arrived later, so its lookups stay correct.
        """
        later: list[list[NotValid]] = [[] for _ in range(_PARTS)]
        for record in self._tail.values():
            later[record.entry[0]].append(record)
        for byte, arrived in enumerate(later):
            self._parts[byte] = self._parts[byte].merged(arrived, now=now, byte=byte)
        return Records(parts=self._parts)


class _Part(NamedTuple):
    """The records whose entries begin with a byte, in the order of their entries.

    Attributes:
        records: Packed.
        places: Index of the first record for each value of the bits after that byte; at the end, the number of records.
        shift: Right shift that reduces the next two bytes to these bits.
        present: A bit for each value of the next 15 bits: whether a record may have this value.
    """

    records: bytes
    places: array[int]
    shift: int
    present: bytes | bytearray

    @classmethod
    def indexed(cls, records: bytes, *, byte: int) -> Self:
        """Index packed records.

        Raises:
            InvalidFeed: They are not in order, or not of this byte.
        """
        count = len(records) // _SIZE
        bits = min(max(0, count.bit_length() - 2), _MAX_BITS)  # two to four records a place
        shift = _MAX_BITS - bits
        places = array("H" if count < _HALF_WORD else "I", [0]) * ((1 << bits) + 1)
        is_filtered = count >= _FILTERED
        present = bytearray(_FILTER_BYTES) if is_filtered else _NO_FILTER
        filled, number = 0, 0
        earlier = b""
        for entry, _, _ in RECORD.iter_unpack(records):
            if entry <= earlier or entry[0] != byte:
                raise InvalidFeed("the records of the snapshot are not sorted")
            earlier = entry
            following = entry[1] << 8 | entry[2]
            if is_filtered:
                present[following >> 4] |= 1 << (following >> 1 & 7)  # type: ignore[index]  # a bytearray
            place = following >> shift
            while filled < place:
                filled += 1
                places[filled] = number
            number += 1
        for later in range(filled + 1, len(places)):
            places[later] = number
        return cls(records, places, shift, present)

    @property
    def size(self) -> int:
        """Number of records."""
        return self.places[-1]

    def merged(self, later: Iterable[NotValid], *, now: float, byte: int) -> Self:
        """Return a part with later records, without those that can be forgotten."""
        packed = (self.records[place : place + _SIZE] for place in range(0, len(self.records), _SIZE))
        kept = {record[:ENTRY_BYTES]: record for record in packed}
        kept.update((record.entry, record.pack()) for record in later)
        over = int(now).to_bytes(_NUMBER_BYTES, "big")
        records = b"".join(record for _, record in sorted(kept.items()) if record[-_NUMBER_BYTES:] > over)
        return self.indexed(records, byte=byte)
