"""The records of the feed in memory: 24 bytes each, and a look-up that reads no more than a few of them.

256 parts of sorted records by the first byte of their entries, each with an index by the next bits, and a dictionary of
those that arrived later. Entries are hashes, evenly spread, so all parts are alike. Parts are replaced one by one: at no
time are there two copies of all records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from stead.not_valid.entries import ENTRY_BYTES, RECORD, NotValid, unpack
from stead.not_valid.messages import InvalidFeed

_TAIL: Final = 20_000
_PARTS: Final = 256
_SIZE: Final = RECORD.size
_NUMBER_BYTES: Final = 4


class Records:
    """Records by entry; the later of two records of an entry counts."""

    def __init__(self, records: bytes | bytearray = b"") -> None:
        """Index the packed records of a snapshot, without a copy of them.

        Raises:
            InvalidFeed: They are not in the order of their entries.
        """
        self._tail: dict[bytes, NotValid] = {}
        self._parts: list[_Part] = []
        count = len(records) // _SIZE
        first = 0
        for byte in range(_PARTS):
            end = bisect_left(range(count), byte + 1, lo=first, key=lambda number: records[number * _SIZE])
            self._parts.append(_Part(records, first * _SIZE, end * _SIZE, byte))
            first = end

    def __len__(self) -> int:
        return sum(map(len, self._parts)) + len(self._tail)

    def not_before(self, entry: bytes) -> int:
        """Return the time before which nothing of an entry is valid; 0 if the feed does not name it."""
        later = self._tail.get(entry)
        return self._parts[entry[0]].not_before(entry) if later is None else later.not_before

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

        These here share their parts with it, and go on answering as before: they keep what arrived later.
        """
        later: list[list[NotValid]] = [[] for _ in range(_PARTS)]
        for record in self._tail.values():
            later[record.entry[0]].append(record)
        for byte, arrived in enumerate(later):
            self._parts[byte] = self._parts[byte].merged(arrived, now=now)
        tidied = Records.__new__(Records)
        tidied._tail, tidied._parts = {}, self._parts
        return tidied


class _Part:
    """The records whose entries begin with a byte, in the order of their entries."""

    __slots__ = ("_byte", "_end", "_first", "_places", "_records", "_shift")

    def __init__(self, records: bytes | bytearray, first: int, end: int, byte: int) -> None:
        """Index what is between two offsets.

        Raises:
            InvalidFeed: The records are not in order, or not of this byte.
        """
        count = (end - first) // _SIZE
        bits = max(0, count.bit_length() - 2)  # two to four records a place
        shift = 32 - bits
        places = array("I", bytes(4 * ((1 << bits) + 1)))
        filled, offset = 0, first
        earlier = bytes([byte])
        for entry, _, _ in RECORD.iter_unpack(memoryview(records)[first:end]):
            if entry <= earlier or entry[0] != byte:
                raise InvalidFeed("the records of the snapshot are not sorted")
            earlier = entry
            place = int.from_bytes(entry[1:5], "big") >> shift
            while filled < place:
                filled += 1
                places[filled] = offset
            offset += _SIZE
        for later in range(filled + 1, len(places)):
            places[later] = offset
        places[0] = first
        self._records, self._first, self._end, self._byte = records, first, end, byte
        self._places, self._shift = places, shift

    def __len__(self) -> int:
        return (self._end - self._first) // _SIZE

    def not_before(self, entry: bytes) -> int:
        """Return the time of an entry; 0 without a record."""
        place = int.from_bytes(entry[1:5], "big") >> self._shift
        first, end = self._places[place], self._places[place + 1]
        if first == end:
            return 0
        found = self._records.find(entry, first, end)
        while found >= 0 and (found - first) % _SIZE:  # the bytes of two records
            found = self._records.find(entry, found + 1, end)
        if found < 0:
            return 0
        number = found + ENTRY_BYTES
        return int.from_bytes(self._records[number : number + _NUMBER_BYTES], "big")

    def merged(self, later: Iterable[NotValid], *, now: float) -> _Part:
        """Return a part with later records, without those that can be forgotten."""
        packed = (bytes(self._records[place : place + _SIZE]) for place in range(self._first, self._end, _SIZE))
        kept = {record[:ENTRY_BYTES]: record for record in packed}
        kept.update((record.entry, record.pack()) for record in later)
        over = int(now).to_bytes(_NUMBER_BYTES, "big")
        records = b"".join(record for _, record in sorted(kept.items()) if record[-_NUMBER_BYTES:] > over)
        return _Part(records, 0, len(records), self._byte)
