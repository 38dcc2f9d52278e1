"""Lists impersonations, each reconstructed from its entries in the audit trail.

Pages walk the entries that begin impersonations (``BEGINNINGS``); such an entry leads to all others of the same one.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.access.callers import Caller
from identity_common.clock import Clock, now_ms
from identity_common.failures import missing_by_id
from identity_common.wire.audit import BEGINNINGS, ISSUED, SUCCEEDED, TAKEN, AuditEntry
from identity_common.wire.subject_tokens import BegunImpersonation
from identity_common.words import prefix_query
from management_service.audit.reading.names import TrailNames
from management_service.audit.reading.searches import TrailSearches
from management_service.audit.reading.service import read_position
from management_service.audit.reading.store import (
    Concern,
    Position,
    TrailFilters,
    entries_of_subject_tokens,
    newest_first,
)
from management_service.impersonations.memberships import find_membership_ends
from management_service.impersonations.rules import is_well_formed, longest_life_ms
from management_service.impersonations.stories import (
    ImpersonationStory,
    Trace,
    ended_parties,
    ending_parties,
    outer_ids,
    story,
)
from management_service.party_ends import PartyEnd, find_party_ends
from management_service.token_lifetimes import longest_lifetime_ms

_READ_AT_ONCE: Final = 100
_MAX_READ: Final = 1000
"""Entries that a page reads at most: if few of them match, it is shorter than requested, and the next one continues."""
_ADVICE: Final = "Use longer words, or the id of one person."

_decode = msgspec.json.Decoder(AuditEntry).decode


class RegisterFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of impersonations; all must match.

    Attributes:
        is_active: Whether they have neither ended nor expired.
        user_id: The subject.
        actor_id: The actor.
        person_ids: Users, of whom one is the subject or the actor.
        client_id: The application that exchanged.
        organization_id: The organization that the access token was requested for.
        issued_to: The application that requested the subject token.
        requested_by: The user for whom an application requested it.
        ticket_id: The ticket in the context of the subject token, regardless of the case of ASCII letters.
        words: Beginnings of words of the ticket and the reason; at least one.
    """

    is_active: bool | None = None
    user_id: str | None = None
    actor_id: str | None = None
    person_ids: Sequence[str] | None = None
    client_id: str | None = None
    organization_id: str | None = None
    issued_to: str | None = None
    requested_by: str | None = None
    ticket_id: str | None = None
    words: str | None = None

    @property
    def is_of_context(self) -> bool:
        """Whether the entry with the context has to match, which is that of the subject token."""
        return self.ticket_id is not None or self.words is not None

    @property
    def is_search(self) -> bool:
        """Whether a page may read many entries: those of several people, or those with some words."""
        return self.words is not None or len(self.person_ids or ()) > 1


class RegisterPage(msgspec.Struct, frozen=True):
    """A page of the register.

    Attributes:
        stories: Newest first, without their events.
        next: Where the next page begins; None on the last one.
    """

    stories: list[ImpersonationStory]
    next: str | None


class ImpersonationRegister:
    """Reads the impersonations of a tenant."""

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

    async def get(self, caller: Caller, impersonation_id: str) -> ImpersonationStory:
        """Return an impersonation with its events.

        Raises:
            NotFound: Also if a caller that may not read all of them did not request it.
        """
        found = await self.find(impersonation_id)
        if found is None or not (caller.may("impersonations:read") or is_requested_by(caller, found)):
            raise missing_by_id("entity.not_found")
        return found

    async def find(self, impersonation_id: str) -> ImpersonationStory | None:
        """Return an impersonation with its events; None for an unknown id."""
        if not is_well_formed(impersonation_id):
            return None
        async with self._reader.connect() as connection:
            traces = await self._traces(connection, [impersonation_id])
            found = next(iter(await self._stories(connection, traces.values())), None)
        if found is None:
            return None
        trace = traces[impersonation_id]
        end_reason = trace.end_reason if found.reason == "ended" else None
        return msgspec.structs.replace(found, end_reason=end_reason, events=list(trace.entries))

    async def person_ids(self, caller: Caller, text: str) -> Sequence[str]:
        """Return the user with this id, address or phone number, or else all with this name.

        A caller that may not read users names them by id: no answer may tell it which addresses exist.

        Raises:
            Conflict: There are none, or too many.
        """
        return await self._names.person_ids(self._reader, text) if caller.may("users:read") else (text,)

    async def page(self, filters: RegisterFilters, *, after: str | None, size: int) -> RegisterPage:
        """Return impersonations, newest first.

        Raises:
            Invalid: ``after`` is not from an earlier page.
            Conflict: The database has cancelled the search for several people, or for words.
            TemporarilyUnavailable: Too many of these searches are running.
        """
        position = None if after is None else read_position(after)
        now = self._clock()
        found: list[ImpersonationStory] = []
        searching = self._searches.connection(advice=_ADVICE) if filters.is_search else self._reader.connect()
        async with searching as connection:
            life_ms = longest_life_ms(await longest_lifetime_ms(connection, self._tenant_id))
            walks = _walks(filters, since=now - life_ms if filters.is_active else None)
            if not walks:
                return RegisterPage(found, None)
            at_once = min((size + 1) * len(walks), _MAX_READ) if filters.is_active is None else _READ_AT_ONCE
            for _ in range(_MAX_READ // at_once):
                rows = await self._newest(connection, walks, after=position, limit=at_once)
                entries = [_decode(row.entry) for row in rows]
                traces = await self._traces(connection, [each.subject_token_id or "" for each in entries])
                stories = {each.id: each for each in await self._stories(connection, traces.values())}
                for row, entry in zip(rows, entries, strict=True):
                    if len(found) == size and position is not None:
                        return RegisterPage(found, position.format())
                    position = Position(row.occurred_at, row.number)
                    each = stories.get(entry.subject_token_id or "")
                    if each is None or not _matches(each, filters, now=now):
                        continue
                    if _first(traces[each.id], walks) == entry.id:
                        found.append(each)
                if len(rows) < at_once:
                    return RegisterPage(found, None)
        return RegisterPage(found, None if position is None else position.format())

    async def _newest(
        self, connection: AsyncConnection, walks: Sequence[TrailFilters], *, after: Position | None, limit: int
    ) -> Sequence[Any]:
        """Return the newest entries of all walks together."""
        found: dict[tuple[int, int], Any] = {}  # several walks may find an entry
        for walk in walks:
            rows = await newest_first(connection, self._tenant_id, walk, after=after, limit=limit)
            found |= {(row.occurred_at, row.number): row for row in rows}
        return [found[place] for place in sorted(found, reverse=True)[:limit]]

    async def _entries(self, connection: AsyncConnection, ids: Sequence[str]) -> dict[str, list[AuditEntry]]:
        """Return the entries of some impersonations by id, oldest first."""
        found: dict[str, list[AuditEntry]] = {}
        for row in await entries_of_subject_tokens(connection, self._tenant_id, ids):
            found.setdefault(row.subject_token_id, []).append(_decode(row.entry))
        return found

    async def _traces(self, connection: AsyncConnection, ids: Sequence[str]) -> dict[str, Trace]:
        """Return the entries about impersonations, by id; impersonations without any are left out."""
        entries = await self._entries(connection, ids)
        outer = {each: outer_ids(own) for each, own in entries.items()}
        if missing := {each for several in outer.values() for each in several} - entries.keys():
            entries |= await self._entries(connection, [*missing])
        lifetime_ms = await longest_lifetime_ms(connection, self._tenant_id)
        return {
            each: Trace(entries[each], [entries.get(one, []) for one in outer[each]], lifetime_ms) for each in outer
        }

    async def _stories(self, connection: AsyncConnection, traces: Collection[Trace]) -> list[ImpersonationStory]:
        parties = {party for each in traces for party in (*ended_parties(each), *ending_parties(each))}
        happened = await find_party_ends(connection, self._tenant_id, parties) if parties else {}
        for party, ends in (await self._membership_ends(connection, traces)).items():
            happened.setdefault(party, []).extend(ends)
        return [found for each in traces if (found := story(each, happened)) is not None]

    async def _membership_ends(
        self, connection: AsyncConnection, traces: Collection[Trace]
    ) -> dict[str, list[PartyEnd]]:
        of_organizations = [each for each in traces if each.membership is not None]
        if not of_organizations:
            return {}
        return await find_membership_ends(
            connection,
            self._tenant_id,
            {each.membership for each in of_organizations if each.membership is not None},
            first=min(each.entries[0].occurred_at for each in of_organizations),
            last=max(each.expires_at for each in of_organizations),
        )


def is_requested_by(caller: Caller, impersonation: ImpersonationStory | BegunImpersonation) -> bool:
    """Return whether a caller requested an impersonation: for itself, or for the user that it acts for.

    Users of one application, such as the console, are different callers.
    """
    if caller.user_id is None:
        return impersonation.issued_to == caller.application_id
    return impersonation.requested_by == caller.user_id


def seen_by(caller: Caller, filters: RegisterFilters) -> RegisterFilters:
    """Restrict filters to what a caller may see: only what it requested, unless it may read all."""
    if caller.may("impersonations:read"):
        return filters
    if caller.user_id is None:
        return msgspec.structs.replace(filters, issued_to=caller.application_id)
    return msgspec.structs.replace(filters, requested_by=caller.user_id)


def _walks(filters: RegisterFilters, *, since: int | None) -> list[TrailFilters]:
    """Return filters of the trail that find an entry of every impersonation that matches.

    Args:
        filters: Filters of the impersonations.
        since: When the oldest match may have begun, milliseconds since the epoch; None for no limit.
    """
    requester: list[list[Concern]] = []
    if filters.requested_by is not None:
        requester.append([Concern("requested_by", filters.requested_by)])
    if filters.is_of_context:
        of_context = TrailFilters(
            key=ISSUED,
            concerning=tuple(requester),
            subject_id=filters.user_id,
            application_id=filters.issued_to,
            ticket=filters.ticket_id,
            context_query=None if filters.words is None else prefix_query(filters.words),
            start_time=since,
        )
        return [of_context]
    if requester:
        return [TrailFilters(key=ISSUED, concerning=tuple(requester), subject_id=filters.user_id, start_time=since)]
    if filters.person_ids is not None:
        either = [
            msgspec.structs.replace(filters, person_ids=None, **{part: person_id})
            for person_id in filters.person_ids
            for part in ("user_id", "actor_id")
            if getattr(filters, part) in {None, person_id}
        ]
        return [walk for each in either for walk in _walks(each, since=since)]
    of_exchange = (filters.actor_id, filters.client_id, filters.organization_id)
    if any(each is not None for each in of_exchange):
        keys: tuple[str, ...] = (TAKEN, SUCCEEDED)
        application_id = filters.client_id
    else:
        keys = BEGINNINGS if filters.issued_to is None else (ISSUED,)
        application_id = filters.issued_to
    return [
        TrailFilters(
            key=key,
            subject_id=filters.user_id,
            actor_id=filters.actor_id,
            application_id=application_id,
            organization_id=filters.organization_id,
            start_time=since,
        )
        for key in keys
    ]


def _first(trace: Trace, walks: Sequence[TrailFilters]) -> str | None:
    """Return the id of the entry at which to list an impersonation, once: the first that a walk finds."""
    found = ((walk, trace.find(walk.key or "")) for walk in walks)
    return next((entry.id for walk, entry in found if entry is not None and _is_on(walk, entry)), None)


def _is_on(walk: TrailFilters, entry: AuditEntry) -> bool:
    """Return whether a walk finds an entry with its key: the walks of a page differ in their subject and actor."""
    return walk.subject_id in {None, entry.user_id} and walk.actor_id in {None, entry.actor_id}


def _matches(found: ImpersonationStory, filters: RegisterFilters, *, now: int) -> bool:
    if filters.is_active is not None and found.is_active(now) != filters.is_active:
        return False
    if filters.person_ids is not None and {found.user_id, found.actor_id}.isdisjoint(filters.person_ids):
        return False
    names = ("user_id", "actor_id", "client_id", "organization_id", "issued_to", "requested_by")
    wanted = {name: value for name in names if (value := getattr(filters, name)) is not None}
    return all(getattr(found, name) == value for name, value in wanted.items())
