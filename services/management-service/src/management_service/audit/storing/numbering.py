"""The numbers of a log: which entries are missing, and which are repeats. Pure.

An outbox never restarts its numbers. A stream in Redis that has lost its data begins another epoch at 1.
"""

from typing import Final

from identity_common.identifiers import new_id
from identity_common.wire.audit import GAP_KEY, AuditEntry, AuditGap, AuditLog

_MAX_SEQUENCE: Final = 2**62


class Numberings:
    """How far each log was ingested.

    Args:
        last: The last number of each log and epoch, oldest epoch first.
    """

    def __init__(self, last: dict[tuple[AuditLog, str], int]) -> None:
        self._last = dict(last)
        self._epochs: dict[AuditLog, list[str]] = {}
        for log, epoch in last:
            self._epochs.setdefault(log, []).append(epoch)
        self.advanced: dict[tuple[AuditLog, str], int] = {}

    def advance(self, entry: AuditEntry) -> AuditGap | None:
        """Take the number of an entry into account; return what is missing before it.

        A number that is not beyond the last one is a repeat, or fills a gap that is recorded already: nothing is
        missing before it.
        """
        numbering = (entry.log, entry.epoch)
        epochs = self._epochs.setdefault(entry.log, [])
        is_first = numbering not in self._last
        previous = epochs[-1] if is_first and epochs else None
        last = self._last.get(numbering, 0)
        if is_first:
            epochs.append(entry.epoch)
        elif entry.sequence <= last:
            return None
        self._last[numbering] = self.advanced[numbering] = entry.sequence
        is_complete = entry.sequence == last + 1
        if is_complete and previous is None:
            return None
        return AuditGap(
            first=None if is_complete else last + 1,
            last=None if is_complete else entry.sequence - 1,
            previous_epoch=previous,
        )


def gap_entry(gap: AuditGap, before: AuditEntry) -> AuditEntry:
    """Return the entry that records a gap, at the time of the entry after it; it has no number of its own."""
    return AuditEntry(
        id=new_id(),
        occurred_at=before.occurred_at,
        tenant_id=before.tenant_id,
        log=before.log,
        epoch=before.epoch,
        key=GAP_KEY,
        outcome="unknown",
        gap=gap,
    )


def is_numbered(entry: AuditEntry) -> bool:
    """Return whether an entry has a number that can follow others."""
    return 0 < entry.sequence < _MAX_SEQUENCE
