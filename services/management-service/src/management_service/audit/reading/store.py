"""Reads entries in PostgreSQL. Each filter has an index that yields its entries in the order of the answer."""

from collections.abc import Sequence
from typing import Any, Final

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
    bindparam,
    exists,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.audit import BEGINNINGS, ISSUED
from management_service.schema import (
    audit_entries,
    audit_figures,
    audit_targets,
)

_ENTRY: Final = (audit_entries.c.occurred_at, audit_entries.c.number, audit_entries.c.entry)
_LEAF: Final = (audit_entries.c.leaf_index, audit_entries.c.salt, audit_entries.c.personal_hash)


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


class TrailFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of entries; all must match.

    Attributes:
        user_id: A user: the subject, the author or target of a write, or for whom a subject token was requested.
        subject_id: A user as the subject only; see ``impersonations.register``.
        target_id: An object that was written to, or that a write changed.
        actor_id: The user that acts for another.
        application_id: The application that sent the request.
        organization_id: The organization that a token was requested for, or that was written to.
        subject_token_id: Public id of the subject token.
        operation: ``operationId`` of the request.
        key: What happened.
        start_time: Milliseconds since the epoch, inclusive.
        end_time: Milliseconds since the epoch, inclusive.
    """

    user_id: str | None = None
    subject_id: str | None = None
    target_id: str | None = None
    actor_id: str | None = None
    application_id: str | None = None
    organization_id: str | None = None
    subject_token_id: str | None = None
    operation: str | None = None
    key: str | None = None
    start_time: int | None = None
    end_time: int | None = None


_EQUAL: Final = ("actor_id", "application_id", "organization_id", "subject_token_id", "operation", "key")


async def newest_first(
    connection: AsyncConnection, tenant_id: str, filters: TrailFilters, *, after: Position | None, limit: int
) -> Sequence[Any]:
    """Return the position and the JSON of the newest entries, or of the newest ones before a position."""
    walks = (each.limit(limit).subquery().select() for each in _walks(tenant_id, filters, after))
    found = union_all(*walks).subquery()
    statement = select(found).order_by(found.c.occurred_at.desc(), found.c.number.desc()).limit(limit)
    return (await connection.execute(statement)).all()


async def oldest_first(
    connection: AsyncConnection, tenant_id: str, filters: TrailFilters, *, size: int, after: Position | None, limit: int
) -> Sequence[Any]:
    """Return the oldest entries, or the oldest ones after a position: the position, the JSON, and the leaf.

    Of the entries in the tree, only the first ``size``. Entries outside the tree, which the service never stores, are
    all returned: an export must not hide them.
    """
    conditions = [*_places(audit_entries, tenant_id, filters, after, newest_first=False), *_equal(filters)]
    conditions.append(or_(audit_entries.c.leaf_index.is_(None), audit_entries.c.leaf_index < size))
    order = (audit_entries.c.occurred_at, audit_entries.c.number)
    statement = select(*_ENTRY, *_LEAF).where(*conditions).order_by(*order).limit(limit)
    return (await connection.execute(statement)).all()


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
    statement: Select[Any] = select(audit_entries.c.entry).where(
        audit_entries.c.tenant_id == tenant_id, audit_entries.c.id == entry_id
    )
    found: str | None = (await connection.execute(statement.limit(1))).scalar_one_or_none()
    return found


async def entries_of_subject_tokens(connection: AsyncConnection, tenant_id: str, ids: Sequence[str]) -> Sequence[Any]:
    """Return the subject token and the JSON of every entry about some subject tokens, oldest first."""
    statement = (
        select(audit_entries.c.subject_token_id, audit_entries.c.entry)
        .where(
            audit_entries.c.tenant_id == tenant_id,
            audit_entries.c.subject_token_id == any_(bindparam("ids", type_=ARRAY(Text))),
        )
        .order_by(audit_entries.c.occurred_at, audit_entries.c.number)
    )
    return (await connection.execute(statement, {"ids": list(ids)})).all()


def _walks(tenant_id: str, filters: TrailFilters, after: Position | None) -> list[Select[Any]]:
    """Return statements for the entries that match, newest first; each entry is found by one of them.

    The entries of a user take three walks: those that name the user, writes to the user, and subject tokens requested
    for the user. A single walk with OR would read all entries of the user, or of all users. The entries that begin an
    impersonation are not writes, and have indexes of their own: the user may have any number of others.
    """
    user_id, target_id = filters.user_id, filters.target_id
    is_of_user = audit_entries.c.user_id == user_id
    if target_id is not None:
        of_user = [] if user_id is None else [or_(is_of_user, _has_target(user_id))]
        return [_walk_targets(tenant_id, filters, after, target_id, of_user)]
    begins = [audit_entries.c.subject_token_id.is_not(None)] if filters.key in BEGINNINGS else []
    if user_id is None:
        return [_walk_entries(tenant_id, filters, after, begins)]
    walks = [_walk_entries(tenant_id, filters, after, [*begins, is_of_user])]
    others = or_(audit_entries.c.user_id.is_(None), audit_entries.c.user_id != user_id)
    if not begins:
        walks.append(_walk_targets(tenant_id, filters, after, user_id, [others]))
    if filters.key in {None, ISSUED}:  # no other entry has it
        walks.append(_walk_entries(tenant_id, filters, after, [audit_entries.c.requested_by == user_id, others]))
    return walks


def _walk_entries(
    tenant_id: str, filters: TrailFilters, after: Position | None, conditions: Sequence[ColumnElement[bool]]
) -> Select[Any]:
    places = _places(audit_entries, tenant_id, filters, after)
    return _newest_first(select(*_ENTRY).where(*places, *_equal(filters), *conditions), audit_entries)


def _walk_targets(
    tenant_id: str,
    filters: TrailFilters,
    after: Position | None,
    target_id: str,
    conditions: Sequence[ColumnElement[bool]],
) -> Select[Any]:
    places = _places(audit_targets, tenant_id, filters, after)
    # OFFSET keeps it from being flattened: entries are looked up in the order of the targets, until there are enough.
    found = (
        select(*_ENTRY)
        .where(_is_entry_of(audit_targets), *_equal(filters), *conditions)
        .offset(literal_column("0"))
        .correlate(audit_targets)
        .lateral("found")
    )
    statement = select(found).select_from(audit_targets.join(found, true()))
    return _newest_first(statement.where(*places, audit_targets.c.target_id == target_id), audit_targets)


def _newest_first(statement: Select[Any], place: Table) -> Select[Any]:
    return statement.order_by(place.c.occurred_at.desc(), place.c.number.desc())


def _has_target(target_id: str) -> ColumnElement[bool]:
    other = audit_targets.alias()
    return exists().where(other.c.target_id == target_id, _is_entry_of(other))


def _is_entry_of(targets: FromClause) -> ColumnElement[bool]:
    return and_(*(audit_entries.c[name] == targets.c[name] for name in ("tenant_id", "occurred_at", "number")))


def _equal(filters: TrailFilters) -> list[ColumnElement[bool]]:
    given = {"user_id": filters.subject_id, **{name: getattr(filters, name) for name in _EQUAL}}
    return [audit_entries.c[name] == value for name, value in given.items() if value is not None]


def _places(
    table: Table, tenant_id: str, filters: TrailFilters, after: Position | None, *, newest_first: bool = True
) -> list[ColumnElement[bool]]:
    """Return the conditions for the part of a table to walk; those on the time also prune partitions."""
    conditions = [table.c.tenant_id == tenant_id]
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
