"""Reading the audit trail."""

import re
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.http.api_errors import Issue, invalid_input, missing_by_id
from management_service.audit.store import Position, TrailFilters, find_entry, newest_first, oldest_first

_POSITION: Final = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})")
_EXPORTED_AT_ONCE: Final = 1000


class TrailPage(msgspec.Struct, frozen=True):
    """A page of the trail.

    Attributes:
        entries: The JSON of each entry.
        next: Where the next page begins; None on the last one.
    """

    entries: list[str]
    next: str | None


class AuditTrail:
    """Reads the trail of a tenant."""

    def __init__(self, reader: AsyncEngine, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._reader = reader
        self._tenant_id = tenant_id
        self._clock = clock

    async def page(self, filters: TrailFilters, *, after: str | None, size: int) -> TrailPage:
        """Return entries, newest first.

        Raises:
            ApiError: 400 if ``after`` is not from an earlier page.
        """
        beyond = None if after is None else _position(after)
        async with self._reader.connect() as connection:
            rows = await newest_first(connection, self._tenant_id, filters, after=beyond, limit=size + 1)
        shown = rows[:size]
        following = f"{shown[-1].occurred_at}.{shown[-1].number}" if len(rows) > size else None
        return TrailPage([row.entry for row in shown], following)

    async def get(self, entry_id: str) -> str:
        """Return the JSON of an entry.

        Raises:
            ApiError: 404.
        """
        async with self._reader.connect() as connection:
            entry = await find_entry(connection, self._tenant_id, entry_id)
        if entry is None:
            raise missing_by_id()
        return entry

    async def export(self, filters: TrailFilters) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON, oldest first, up to now; parts are read one by one, so a slow reader blocks nothing."""
        now = self._clock()
        filters = msgspec.structs.replace(
            filters, end_time=min(now, now if filters.end_time is None else filters.end_time)
        )
        after = None
        while True:
            async with self._reader.connect() as connection:
                rows = await oldest_first(connection, self._tenant_id, filters, after=after, limit=_EXPORTED_AT_ONCE)
            if not rows:
                return
            yield "".join(f"{row.entry}\n" for row in rows).encode()
            after = Position(rows[-1].occurred_at, rows[-1].number)


def _position(text: str) -> Position:
    match = _POSITION.fullmatch(text)
    if match is None:
        raise invalid_input(Issue(path="after", message="must be from the Link of an earlier page"))
    return Position(int(match[1]), int(match[2]))
