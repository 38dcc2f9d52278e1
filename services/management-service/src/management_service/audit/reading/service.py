"""Reads the audit trail."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any, Final, Literal

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.callers import Caller
from identity_common.clock import Clock, now_ms
from identity_common.failures import Issue, invalid_input, missing_by_id
from management_service.audit.reading.names import Beside, TrailNames
from management_service.audit.reading.searches import AT_ONCE, TrailSearches
from management_service.audit.reading.store import (
    Position,
    TrailFilters,
    find_entry,
    hourly_figures,
    newest_first,
    oldest_first,
)
from management_service.audit.reading.table import table_head, table_rows
from management_service.audit.storing.figures import HOUR_MS, hour_of
from management_service.audit.tree.store import tree_size
from stead.audit.heads import encoded

ExportForm = Literal["jsonl", "csv"]

_POSITION: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
_EXPORTED_AT_ONCE: Final = 1000
_DAY_MS: Final = 24 * HOUR_MS
_MAX_FIGURES_DAYS: Final = 31
_MAX_FIGURES_MS: Final = _MAX_FIGURES_DAYS * _DAY_MS
_ADVICE: Final = "Limit its time with start_time and end_time."


class TrailPage(msgspec.Struct, frozen=True):
    """A page of the trail.

    Attributes:
        entries: The JSON of each entry, with the names beside it.
        next: Where the next page begins; None on the last one.
    """

    entries: list[str]
    next: str | None


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """What a filter gives by a name, an address or an id.

    Attributes:
        person: A user.
        application: An application.
        organization: An organization.
        q: Any of them.
        ticket_id: The ticket of impersonations, regardless of the case of ASCII letters.
    """

    person: str | None = None
    application: str | None = None
    organization: str | None = None
    q: str | None = None
    ticket_id: str | None = None


class Figure(msgspec.Struct, frozen=True):
    """How often something happened in an hour.

    Attributes:
        hour: When the hour begins, in milliseconds since the epoch.
        key: What happened.
        entries: How many entries have this key; at least 1.
    """

    hour: int
    key: str
    entries: int


class AuditTrail:
    """Reads the trail of a tenant."""

    def __init__(
        self,
        reader: AsyncEngine,
        names: TrailNames,
        searches: TrailSearches,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._names = names
        self._searches = searches
        self._tenant_id = tenant_id
        self._clock = clock
        self._exporting = asyncio.Semaphore(AT_ONCE)

    async def concerning(self, filters: TrailFilters, named: Named) -> TrailFilters:
        """Return filters that entries about each of these objects match as well.

        Raises:
            Conflict: Nothing is called so, or too much.
            TemporarilyUnavailable: It is not known whether an organization is called so.
        """
        finders = (
            (self._names.person, named.person),
            (self._names.application, named.application),
            (self._names.organization, named.organization),
            (self._names.anything, named.q),
        )
        groups = [await find(self._reader, text) for find, text in finders if text is not None]
        about = None if named.ticket_id is None else await self._names.ticket(self._reader, named.ticket_id)
        return msgspec.structs.replace(filters, concerning=tuple(groups), impersonations=about)

    async def page(self, filters: TrailFilters, caller: Caller, *, after: str | None, size: int) -> TrailPage:
        """Return entries, newest first.

        Raises:
            Invalid: ``after`` is not from an earlier page.
            Conflict: The database has cancelled the search for entries that concern several objects.
            TemporarilyUnavailable: Too many of these searches are running.
        """
        beyond = None if after is None else read_position(after)
        searching = self._searches.connection(advice=_ADVICE) if filters.concerning else self._reader.connect()
        async with searching as connection:
            rows = await newest_first(connection, self._tenant_id, filters, after=beyond, limit=size + 1)
            shown = [row.entry for row in rows[:size]]
            found = await self._names.beside(connection, shown, caller)
        following = Position(rows[size - 1].occurred_at, rows[size - 1].number).format() if len(rows) > size else None
        return TrailPage([*map(_with, shown, found)], following)

    async def get(self, entry_id: str, caller: Caller) -> str:
        """Return the JSON of an entry, with the names beside it."""
        async with self._reader.connect() as connection:
            entry = await find_entry(connection, self._tenant_id, entry_id)
            if entry is None:
                raise missing_by_id()
            (found,) = await self._names.beside(connection, [entry], caller)
        return _with(entry, found)

    async def figures(self, start_time: int | None, end_time: int | None) -> list[Figure]:
        """Return how many entries of each key each hour has, oldest hour first; the hours of the bounds included.

        Args:
            start_time: In milliseconds since the epoch; a day before the end if it is None.
            end_time: Now if it is None.

        Raises:
            Invalid: The bounds are more than 31 days apart, or the end is before the start.
        """
        until = self._clock() if end_time is None else end_time
        begin = max(until - _DAY_MS, 0) if start_time is None else start_time
        if begin > until:
            raise invalid_input(Issue(path="start_time", message="must not be after end_time"))
        if until - begin > _MAX_FIGURES_MS:
            raise invalid_input(
                Issue(path="start_time", message=f"must be within {_MAX_FIGURES_DAYS} days of end_time")
            )
        async with self._reader.connect() as connection:
            rows = await hourly_figures(connection, self._tenant_id, first=hour_of(begin), last=until)
        return [Figure(hour=row.hour, key=row.key, entries=row.entries) for row in rows]

    async def export(
        self, filters: TrailFilters, caller: Caller, *, form: ExportForm = "jsonl"
    ) -> AsyncGenerator[bytes, None]:
        """Yield the entries that match, oldest first: those that are in the tree when the export begins.

        No connection is held between batches, so a slow client blocks nothing. Few batches are read at once: an export
        that has begun cannot be refused, so it waits.
        """
        async with self._reader.connect() as connection:
            size = await tree_size(connection, self._tenant_id)
        if form == "csv":
            yield table_head()
        after = None
        while True:
            async with self._exporting, self._reader.connect() as connection:
                rows = await oldest_first(connection, self._tenant_id, filters, after=after, limit=_EXPORTED_AT_ONCE)
                # Entries outside the tree, which the service never stores, are exported too: none may be hidden.
                exported = [row for row in rows if row.leaf_index is None or row.leaf_index < size]
                if form == "csv":
                    entries = [row.entry for row in exported]
                    beside = await self._names.beside(connection, entries, caller)
                    text = table_rows(entries, [each.names for each in beside])
                else:
                    text = "".join(map(_exported, exported)).encode()
            if text:
                yield text
            if len(rows) < _EXPORTED_AT_ONCE:
                return
            after = Position(rows[-1].occurred_at, rows[-1].number)


def _with(entry: str, found: Beside) -> str:
    """Return the JSON of an entry with what was found for it; the entry itself stays as it is stored."""
    members = msgspec.json.encode(found).decode()
    return entry if members == "{}" else f"{entry.rstrip()[:-1]},{members[1:]}"


def _exported(row: Any) -> str:
    """Return the line of an entry, with what is needed to recompute its leaf."""
    if row.leaf_index is None:
        return f"{row.entry}\n"
    part = {"personalHash": row.personal_hash} if row.salt is None else {"salt": row.salt}
    leaf = {"index": row.leaf_index, **{name: encoded(value or b"") for name, value in part.items()}}
    return f'{row.entry.rstrip()[:-1]},"leaf":{msgspec.json.encode(leaf).decode()}}}\n'


def read_position(text: str) -> Position:
    """Parse the position in a link to a page."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise invalid_input(Issue(path="after", message="must be from the Link of an earlier page"))
    return Position(int(match[1]), int(match[2]))
