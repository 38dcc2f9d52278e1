"""Folds consecutive entries of the audit trail that are no news: an application that gets one token after another."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from stead.models import AuditEntry

_NO_NEWS: Final = frozenset(
    f"token.{grant}.succeeded" for grant in ("authorization-code", "client-credentials", "refresh-token")
)


class Row(msgspec.Struct, frozen=True):
    """One entry, or several that are folded.

    Attributes:
        entries: At least one, newest first.
    """

    entries: Sequence[AuditEntry]

    @property
    def entry(self) -> AuditEntry:
        """The newest entry."""
        return self.entries[0]

    @property
    def since(self) -> int:
        """When the oldest entry occurred, milliseconds since the epoch."""
        return self.entries[-1].occurred_at


def folded(entries: Iterable[AuditEntry]) -> list[Row]:
    """Return the rows of a list: consecutive tokens of one application for the same user are one row."""
    rows: list[Row] = []
    for subject, some in groupby(entries, _subject):
        alike = [*some]
        rows += [Row([each]) for each in alike] if subject is None else [Row(alike)]
    return rows


def _subject(entry: AuditEntry) -> tuple[str | None, str | None] | None:
    """Return whose tokens an entry is one of; None for what is not folded."""
    return (entry.application_id, entry.user_id) if entry.key in _NO_NEWS else None
