"""Reads entries in PostgreSQL. Each filter has an index that yields its entries in the order of their time.

An index has the hash of what it finds. Those of one time are sorted, and what else has the hash is sorted out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    and_,
    any_,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.stores.words import has_words
from identity_common.wire.audit import BEGINNINGS, ISSUED, Outcome
from management_service.audit.schema import (
    are_audit_members,
    audit_entries,
    audit_figures,
    audit_outcome,
    audit_parties,
    audit_targets,
    audit_ticket,
    has_audit_hash,
    has_audit_hash_of_any,
    has_audit_members,
)

_PLACE: Final = (audit_entries.c.occurred_at, audit_entries.c.number)
_REST: Final = tuple(audit_entries.c[name] for name in ("entry", "leaf_index", "salt", "personal_hash"))
# OFFSET keeps a lateral subquery from being flattened: entries are looked up in the order of their positions, until
# there are enough.
_UNFLATTENED: Final[ColumnElement[int]] = literal_column("0")


IS_ISSUED: Final = audit_entries.c.key == literal_column(f"'{ISSUED}'")  # as in the condition of the index
CONTEXT_WORDS: Final = "search_words(name_sort_key(audit_context(entry)))"


class Position(msgspec.Struct, frozen=True):
    """The place of an entry in the order of the trail.

    Attributes:
        occurred_at: Milliseconds since the epoch.
        number: Order of arrival, among entries of one time.
    """

    occurred_at: int
    number: int

    def format(self) -> str:
        """Return the position as it is in links to a page."""
        return f"{self.occurred_at}.{self.number}"


Way = Literal["user_id", "actor_id", "requested_by", "application_id", "organization_id", "target", "party"]
"""How an entry can concern an object: a column of it names the object, or a table of objects has the entry."""

_COLUMNS: Final[frozenset[Way]] = frozenset(
    {"user_id", "actor_id", "requested_by", "application_id", "organization_id"}
)
_TABLES: Final[Mapping[Way, tuple[Table, str]]] = {
    "target": (audit_targets, "target_id"),
    "party": (audit_parties, "party_id"),
}
_OF_USER: Final[Sequence[Way]] = ("user_id", "target", "requested_by")
_OF_PERSON: Final[Sequence[Way]] = (*_OF_USER, "actor_id", "party")


class Concern(NamedTuple):
    """One way in which entries concern an object."""

    way: Way
    id: str


def of_person(user_id: str) -> list[Concern]:
    """Return every way in which entries concern a user."""
    return [Concern(way, user_id) for way in _OF_PERSON]


def of_application(application_id: str) -> list[Concern]:
    """Return every way in which entries concern an application: it sent the request, or was written to."""
    return [Concern("application_id", application_id), Concern("target", application_id)]


def of_organization(organization_id: str) -> list[Concern]:
    """Return every way in which entries concern an organization."""
    return [Concern("organization_id", organization_id), Concern("target", organization_id)]


class TrailFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of entries; all must match.

    Attributes:
        concerning: Concerns, of each group of which one must match; no group is empty.
        user_id: A user: the subject, the author or target of a write, or for whom a subject token was requested.
        subject_id: A user as the subject only; see ``impersonations.register``.
        target_id: An object that was written to, or that a write changed.
        actor_id: The user that acts for another.
        application_id: The application that sent the request.
        organization_id: The organization that a token was requested for, or that was written to.
        subject_token_id: Public id of the subject token.
        operation: ``operationId`` of the request.
        key: What happened.
        ticket: The ticket in the context, compared by ``is_of_ticket``; only with the key ``ISSUED``.
        context_query: Of words of the ticket and the reason, from ``prefix_query``; only with the key ``ISSUED``.
        outcome: How it ended, which the key says.
        impersonations: Public ids of subject tokens, one of which the entry must be about; a bounded number.
        start_time: Milliseconds since the epoch, inclusive.
        end_time: Milliseconds since the epoch, inclusive.
    """

    concerning: tuple[Sequence[Concern], ...] = ()
    user_id: str | None = None
    subject_id: str | None = None
    target_id: str | None = None
    actor_id: str | None = None
    application_id: str | None = None
    organization_id: str | None = None
    subject_token_id: str | None = None
    operation: str | None = None
    key: str | None = None
    ticket: str | None = None
    context_query: str | None = None
    outcome: Outcome | None = None
    impersonations: Sequence[str] | None = None
    start_time: int | None = None
    end_time: int | None = None

    @property
    def groups(self) -> list[Sequence[Concern]]:
        """The groups of concerns, with those of the user and the target."""
        targets = [] if self.target_id is None else [[Concern("target", self.target_id)]]
        users = [] if self.user_id is None else [[Concern(way, self.user_id) for way in _OF_USER]]
        return [*targets, *self.concerning, *users]


_PAIRED: Final = ("application_id", "organization_id")
"""Members that have an index together with the key, as the user has: of entries about impersonations."""
_EQUAL: Final = ("actor_id", "application_id", "organization_id", "subject_token_id", "operation", "key")


async def newest_first(
    connection: AsyncConnection, tenant_id: str, filters: TrailFilters, *, after: Position | None, limit: int
) -> Sequence[Any]:
    """Return the position, the JSON and the leaf of the newest entries, or of the newest ones before a position."""
    statement = _found(tenant_id, filters, after, limit=limit, newest_first=True)
    found: Sequence[Any] = (await connection.execute(statement)).all()
    return found


async def oldest_first(
    connection: AsyncConnection, tenant_id: str, filters: TrailFilters, *, after: Position | None, limit: int
) -> Sequence[Any]:
    """Return the same of the oldest entries, or of the oldest ones after a position."""
    statement = _found(tenant_id, filters, after, limit=limit, newest_first=False)
    found: Sequence[Any] = (await connection.execute(statement)).all()
    return found


async def hourly_figures(connection: AsyncConnection, tenant_id: str, *, first: int, last: int) -> Sequence[Any]:
    """Return ``hour``, ``key`` and ``entries`` of the hours that begin between two times, both included."""
    statement = (
        select(audit_figures.c.hour, audit_figures.c.key, audit_figures.c.entries)
        .where(audit_figures.c.tenant_id == tenant_id, audit_figures.c.hour.between(first, last))
        .order_by(audit_figures.c.hour, audit_figures.c.key)
    )
    return (await connection.execute(statement)).all()


async def find_entry(connection: AsyncConnection, tenant_id: str, entry_id: str) -> str | None:
    """Return the JSON of an entry; None for an unknown id."""
    statement: Select[Any] = select(audit_entries.c.entry).where(has_audit_members(tenant_id, id=entry_id))
    found: str | None = (await connection.execute(statement.limit(1))).scalar_one_or_none()
    return found


def is_of_ticket(ticket: str) -> ColumnElement[bool]:
    """Return whether an entry issues a subject token for a ticket, regardless of the case of ASCII letters."""
    return and_(IS_ISSUED, audit_ticket == func.lower(literal(ticket).collate("C")))


def ticket_statement(tenant_id: str, ticket: str, *, limit: int) -> Select[Any]:
    """Return the statement for the subject tokens that were issued for a ticket, newest first."""
    return (
        select(audit_entries.c.subject_token_id)
        .where(
            audit_entries.c.tenant_id == tenant_id,
            is_of_ticket(ticket),
            audit_entries.c.subject_token_id.is_not(None),
        )
        .order_by(audit_entries.c.occurred_at.desc(), audit_entries.c.number.desc())
        .limit(limit)
    )


async def impersonations_of_ticket(
    connection: AsyncConnection, tenant_id: str, ticket: str, *, limit: int
) -> Sequence[str]:
    """Return the subject tokens that were issued for a ticket."""
    return [*(await connection.scalars(ticket_statement(tenant_id, ticket, limit=limit)))]


async def parties_of_impersonations(connection: AsyncConnection, tenant_id: str, ids: Sequence[str]) -> Sequence[Any]:
    """Return the subject token, the subject and the actor of each entry that begins one of some impersonations."""
    statement = select(audit_entries.c.subject_token_id, audit_entries.c.user_id, audit_entries.c.actor_id).where(
        *_about(tenant_id, ids), audit_entries.c.key.in_(BEGINNINGS)
    )
    return (await connection.execute(statement)).all()


async def entries_of_subject_tokens(connection: AsyncConnection, tenant_id: str, ids: Sequence[str]) -> Sequence[Any]:
    """Return the subject token and the JSON of every entry about some subject tokens, oldest first."""
    statement = (
        select(audit_entries.c.subject_token_id, audit_entries.c.entry)
        .where(*_about(tenant_id, ids))
        .order_by(audit_entries.c.occurred_at, audit_entries.c.number)
    )
    return (await connection.execute(statement)).all()


def _about(tenant_id: str, subject_token_ids: Sequence[str]) -> list[ColumnElement[bool]]:
    """Return the conditions that an entry is about one of some subject tokens."""
    ids: ColumnElement[Sequence[str]] = literal(list(subject_token_ids), ARRAY(Text))
    return [
        has_audit_hash_of_any(tenant_id, "subject_token_id", ids),
        are_audit_members(tenant_id, subject_token_id=any_(ids)),
    ]


def _found(
    tenant_id: str, filters: TrailFilters, after: Position | None, *, limit: int, newest_first: bool
) -> Select[Any]:
    """Return the statement for the first entries that match, in order.

    Several walks may find the same entry. Their positions are merged before any entry is read.
    """
    if filters.impersonations is not None:
        return _of_impersonations(tenant_id, filters, after, newest_first=newest_first).limit(limit)
    if filters.context_query is not None:
        return _of_words(tenant_id, filters, after, newest_first=newest_first).limit(limit)
    walks = _walks(tenant_id, filters, after, newest_first=newest_first)
    if not filters.groups:
        (walk,) = walks
        of_times = _first(walk.with_only_columns(*_PLACE, *_REST), limit).subquery()
        return _ordered(select(of_times), of_times, newest_first=newest_first).limit(limit)
    positions = union(*(_first(walk, limit).subquery().select() for walk in walks)).subquery()
    first = _ordered(select(positions), positions, newest_first=newest_first).limit(limit).subquery()
    entries = (
        select(*_REST)
        .where(audit_entries.c.tenant_id == tenant_id, *_same_place(audit_entries, first))
        .offset(_UNFLATTENED)
        .correlate(first)
        .lateral()
    )
    found = select(*first.c, *entries.c).select_from(first.join(entries, true()))
    return _ordered(found, first, newest_first=newest_first)


def _of_words(tenant_id: str, filters: TrailFilters, after: Position | None, *, newest_first: bool) -> Select[Any]:
    """Return the statement for the entries whose context has some words, in order.

    The words are looked up before the entries are ordered: by itself, PostgreSQL would read all entries in order.
    """
    places = _places(audit_entries, filters, after, newest_first=newest_first)
    found = (
        select(*_PLACE, *_REST)
        .where(
            audit_entries.c.tenant_id == tenant_id,
            *places,
            *_conditions(filters, filters.groups),
            IS_ISSUED,
            has_words(CONTEXT_WORDS),
        )
        .cte("found")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    return _ordered(select(found), found, newest_first=newest_first).params(query=filters.context_query)


def _of_impersonations(
    tenant_id: str, filters: TrailFilters, after: Position | None, *, newest_first: bool
) -> Select[Any]:
    """Return the statement for the entries about some impersonations: these few are all read, and then sorted."""
    found = (
        select(*_PLACE, *_REST)
        .where(
            *_places(audit_entries, filters, after, newest_first=newest_first),
            *_about(tenant_id, filters.impersonations or ()),
            *_conditions(filters, filters.groups),
        )
        .offset(_UNFLATTENED)
        .subquery()
    )
    return _ordered(select(found), found, newest_first=newest_first)


def _walks(
    tenant_id: str, filters: TrailFilters, after: Position | None, *, newest_first: bool = True
) -> list[Select[Any]]:
    """Return statements for the positions of the entries that match, in order; each is found by at least one of them.

    The first group of concerns is walked, each of its ways in the index that has its entries in order: a single walk
    with OR would read all entries. The other filters are conditions. The entries that begin an impersonation have
    indexes of their own, since an application may have any number of others; they are not writes.
    """
    walked, *others = filters.groups or [()]
    rest = _rest(filters, others)
    if not walked:
        conditions = [*_walked(tenant_id, _equal(filters)), *rest]
        return [_walk(audit_entries, filters, after, conditions, newest_first=newest_first)]
    return [
        _walk_of(concern, tenant_id, filters, after, rest, newest_first=newest_first)
        for concern in walked
        if _may_have(concern.way, filters.key)
    ] or [_walk(audit_entries, filters, after, [false()], newest_first=newest_first)]


def _may_have(way: Way, key: str | None) -> bool:
    """Return whether entries with a key can concern an object in this way."""
    if key is None or way == "party":
        return True
    if way == "requested_by":
        return key == ISSUED
    return way != "target" or key not in BEGINNINGS


def _walk_of(
    concern: Concern,
    tenant_id: str,
    filters: TrailFilters,
    after: Position | None,
    rest: Sequence[ColumnElement[bool]],
    *,
    newest_first: bool,
) -> Select[Any]:
    equal = _equal(filters)
    if concern.way in _COLUMNS:
        with_key = {"key": equal.pop("key")} if _has_index_with_key(concern.way, filters.key) else {}
        of_concern = _walked(tenant_id, {concern.way: concern.id, **with_key})
        conditions = [*of_concern, *_given(equal), *rest]
        return _walk(audit_entries, filters, after, conditions, newest_first=newest_first)
    conditions = [*_given(equal), *rest]
    table, name = _TABLES[concern.way]
    of_object = [table.c.tenant_id == tenant_id, table.c[name] == concern.id]
    statement = _walk(table, filters, after, of_object, newest_first=newest_first)
    if not conditions:
        return statement
    matching = (
        select(literal_column("1"))
        .where(audit_entries.c.tenant_id == tenant_id, *_same_place(audit_entries, table), *conditions)
        .offset(_UNFLATTENED)
        .correlate(table)
        .lateral()
    )
    return statement.select_from(table.join(matching, true()))


def _walk(
    table: Table,
    filters: TrailFilters,
    after: Position | None,
    conditions: Sequence[ColumnElement[bool]],
    *,
    newest_first: bool,
) -> Select[Any]:
    """Return the statement for the positions in a table, in order."""
    places = _places(table, filters, after, newest_first=newest_first)
    time = table.c.occurred_at
    statement = select(time, table.c.number).where(*places, *conditions)
    return statement.order_by(time.desc() if newest_first else time)


def _first(walk: Select[Any], limit: int) -> Select[Any]:
    """Return the first rows of a walk, and those of the time of the last one, whose order an index does not have."""
    return walk.fetch(limit, with_ties=True)


def _ordered(statement: Select[Any], place: FromClause, *, newest_first: bool) -> Select[Any]:
    order = (place.c.occurred_at, place.c.number)
    return statement.order_by(*(each.desc() for each in order) if newest_first else order)


def _concerns(concern: Concern) -> ColumnElement[bool]:
    """Return the condition that an entry concerns an object in a way."""
    if concern.way in _COLUMNS:
        return audit_entries.c[concern.way] == concern.id
    table, name = _TABLES[concern.way]
    other = table.alias()
    same = (other.c.tenant_id == audit_entries.c.tenant_id, *_same_place(other, audit_entries))
    return exists().where(other.c[name] == concern.id, *same)


def _same_place(one: FromClause, other: FromClause) -> list[ColumnElement[bool]]:
    return [one.c[name] == other.c[name] for name in ("occurred_at", "number")]


def _conditions(filters: TrailFilters, groups: Sequence[Sequence[Concern]]) -> list[ColumnElement[bool]]:
    return [*_given(_equal(filters)), *_rest(filters, groups)]


def _equal(filters: TrailFilters) -> dict[str, str]:
    """Return the members that entries must have, by column."""
    given = {"user_id": filters.subject_id, **{name: getattr(filters, name) for name in _EQUAL}}
    return {name: value for name, value in given.items() if value is not None}


def _given(members: Mapping[str, str]) -> list[ColumnElement[bool]]:
    return [audit_entries.c[name] == value for name, value in members.items()]


def _rest(filters: TrailFilters, groups: Sequence[Sequence[Concern]]) -> list[ColumnElement[bool]]:
    ended = [] if filters.outcome is None else [audit_outcome == filters.outcome]
    ticket = [] if filters.ticket is None else [is_of_ticket(filters.ticket)]
    return [*ended, *ticket, *(or_(*map(_concerns, group)) for group in groups)]


def _walked(tenant_id: str, members: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """Return the conditions that entries of a tenant have some members, for a walk in an index."""
    if not members:
        return [audit_entries.c.tenant_id == tenant_id]
    key = members.get("key")
    pairs = [{name: members[name], "key": key} for name in members if key and _has_index_with_key(name, key)]
    paired = {name for pair in pairs for name in pair}
    hashed = [*pairs, *({name: value} for name, value in members.items() if name not in paired)]
    of_impersonations = [audit_entries.c.subject_token_id.is_not(None)] if key in BEGINNINGS else []
    return [
        *(has_audit_hash(tenant_id, **each) for each in hashed),
        are_audit_members(tenant_id, **members),
        *of_impersonations,
    ]


def _has_index_with_key(column: str, key: str | None) -> bool:
    return key is not None and (column == "user_id" or (column in _PAIRED and key in BEGINNINGS))


def _places(
    table: Table, filters: TrailFilters, after: Position | None, *, newest_first: bool
) -> list[ColumnElement[bool]]:
    """Return the conditions for the part of a table to walk; those on the time also prune partitions."""
    conditions: list[ColumnElement[bool]] = []
    if filters.start_time is not None:
        conditions.append(table.c.occurred_at >= filters.start_time)
    if filters.end_time is not None:
        conditions.append(table.c.occurred_at <= filters.end_time)
    if after is not None:
        own, limit = tuple_(table.c.occurred_at, table.c.number), tuple_(after.occurred_at, after.number)
        if newest_first:
            conditions += [table.c.occurred_at <= after.occurred_at, own < limit]
        else:
            conditions += [table.c.occurred_at >= after.occurred_at, own > limit]
    return conditions
