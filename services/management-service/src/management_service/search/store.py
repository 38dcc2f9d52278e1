"""What the search finds in PostgreSQL."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import BigInteger, Row, Select, Text, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.search import identity_key
from identity_common.stores.searching import Searched
from identity_common.stores.words import has_words
from identity_common.wire.audit import BEGINNINGS, AuditContext, AuditEntry
from identity_common.wire.search import SearchGroup, SearchResult
from identity_common.words import has_beginnings, prefix_query, rare_words_query
from management_service.audit.reading.store import CONTEXT_WORDS, IS_ISSUED
from management_service.audit.schema import (
    AUDIT_REQUEST_ID,
    are_audit_members,
    audit_entries,
    audit_hash,
    has_audit_members,
)
from management_service.phone_numbers import phone_key
from management_service.schema import applications, resources, roles, scopes, users
from management_service.search.rules import may_be_an_id

_PHONE_PUNCTUATION: Final = str.maketrans("", "", " ()./-")


def _phone(text: str) -> str:
    return phone_key(text.translate(_PHONE_PUNCTUATION))


OBJECTS: Final = (
    Searched(
        group="users",
        type="user",
        table=users,
        words=("name", "username", "primary_email", "primary_phone"),
        name=func.coalesce(users.c.name, users.c.username, users.c.primary_email, users.c.primary_phone, users.c.id),
        detail=func.coalesce(users.c.primary_email, users.c.username, users.c.primary_phone),
        keys={
            "external_id": str,
            "username_key": identity_key,
            "primary_email_key": identity_key,
            "primary_phone_key": _phone,
        },
        is_long=True,
    ),
    Searched(
        group="applications",
        type="application",
        table=applications,
        words=("name", "description"),
        detail=applications.c.description,
        is_long=True,
    ),
    Searched(
        group="resources",
        type="resource",
        table=resources,
        words=("name", "indicator"),
        detail=resources.c.indicator,
        keys={"indicator": str},
        is_long=True,
    ),
    Searched(group="roles", type="role", table=roles, words=("name", "description"), detail=roles.c.description),
    Searched(
        group="permissions",
        type="permission",
        table=scopes,
        words=("name", "description"),
        detail=scopes.c.description,
        links={"resource_id": scopes.c.resource_id},
    ),
)

_DAY_MS: Final = 86_400_000
_SPANS_MS: Final = (7 * _DAY_MS, 30 * _DAY_MS, 120 * _DAY_MS)
_EVER: Final = 2**53
_MOST: Final = 10_000
"""Impersonations of a span that are compared: where more have the words, these need not include the newest."""
_FEW: Final = 200
"""Impersonations whose words are compared one by one: quicker than to look up words that nearly all have."""

_GIVEN_TENANT: Final = bindparam("tenant", type_=Text)
_TENANT: Final = audit_entries.c.tenant_id == _GIVEN_TENANT
_ID: Final = bindparam("id", type_=Text)
_SIZE: Final = bindparam("size", type_=BigInteger)
_SHOWN: Final = (audit_entries.c.occurred_at, audit_entries.c.number, audit_entries.c.entry)

_decode = msgspec.json.Decoder(AuditEntry).decode


def _newest(statement: Select[Any]) -> Select[Any]:
    """Order what a statement finds; by itself, PostgreSQL would read entries in this order until enough match."""
    found = statement.cte("found").prefix_with("MATERIALIZED", dialect="postgresql")
    return select(found).order_by(found.c.occurred_at.desc(), found.c.number.desc()).limit(_SIZE)


OF_WORDS: Final = _newest(
    select(*_SHOWN)
    .where(
        _TENANT,
        IS_ISSUED,
        has_words(CONTEXT_WORDS),
        audit_entries.c.occurred_at >= bindparam("first", type_=BigInteger),
        audit_entries.c.occurred_at < bindparam("last", type_=BigInteger),
    )
    .limit(_MOST)
)
OF_RARE_WORDS: Final = _newest(select(*_SHOWN).where(_TENANT, IS_ISSUED, has_words(CONTEXT_WORDS)).limit(_FEW + 1))
OF_IMPERSONATION: Final = _newest(
    select(*_SHOWN).where(
        has_audit_members(_GIVEN_TENANT, subject_token_id=_ID),
        audit_entries.c.key.in_(BEGINNINGS),
    )
)
OF_ENTRY: Final = _newest(select(*_SHOWN).where(has_audit_members(_GIVEN_TENANT, id=_ID)))
OF_REQUEST: Final = _newest(
    select(*_SHOWN).where(
        audit_hash(audit_entries.c.tenant_id, literal_column(AUDIT_REQUEST_ID)) == audit_hash(_GIVEN_TENANT, _ID),
        are_audit_members(_GIVEN_TENANT),
        literal_column("audit_request_id(entry)") == _ID,
    )
)


async def search_impersonations(
    connection: AsyncConnection, tenant_id: str, text: str, *, limit: int, now: int
) -> SearchGroup:
    """Return the impersonation with this id, then the newest ones whose ticket and reason have the words.

    They are looked for in ever longer spans of time, as most of them may have a common word; unless a rare word alone
    finds few.
    """
    values = {"tenant": tenant_id, "id": text, "query": prefix_query(text), "size": limit + 1}
    found: dict[str, SearchResult] = {}
    # The oldest entry of an impersonation has its reason.
    by_id = (await connection.execute(OF_IMPERSONATION, values)).all() if may_be_an_id(text) else ()
    for row in reversed(by_id):
        _add(found, row)
    few = await _few(connection, tenant_id, text)
    for row in few or ():
        _add(found, row)
    for first, last in _spans(now) if few is None else ():
        if len(found) > limit or values["query"] is None:
            break
        rows = await connection.execute(OF_WORDS, {**values, "first": first, "last": last})
        for row in rows:
            _add(found, row)
    results = list(found.values())
    return SearchGroup("impersonations", results[:limit], has_more=len(results) > limit)


async def _few(connection: AsyncConnection, tenant_id: str, text: str) -> list[Row[Any]] | None:
    """Return all impersonations with the words, newest first; None unless a rare word finds them."""
    query = rare_words_query(text)
    if query is None:
        return None
    rows = (await connection.execute(OF_RARE_WORDS, {"tenant": tenant_id, "query": query, "size": _FEW + 1})).all()
    return [row for row in rows if has_beginnings(_words_of(row), text)] if len(rows) <= _FEW else None


def _words_of(row: Row[Any]) -> str:
    context = _decode(row.entry).context or AuditContext()
    return f"{context.ticket_id or ''} {context.reason or ''}"


async def search_entries(connection: AsyncConnection, tenant_id: str, text: str, *, limit: int) -> SearchGroup:
    """Return the entry of the audit trail with this id, or the entries of the request with this id, newest first."""
    values = {"tenant": tenant_id, "id": text, "size": limit + 1}
    rows = [row for statement in (OF_ENTRY, OF_REQUEST) for row in await connection.execute(statement, values)]
    results = [_entry(_decode(row.entry)) for row in rows]
    return SearchGroup("logs", results[:limit], has_more=len(results) > limit)


def _spans(now: int) -> Iterator[tuple[int, int]]:
    """Yield spans of time, the newest first."""
    last = _EVER
    for span in _SPANS_MS:
        yield now - span, last
        last = now - span
    yield 0, last


def _add(found: dict[str, SearchResult], row: Row[Any]) -> None:
    entry = _decode(row.entry)
    impersonation_id, context = entry.subject_token_id, entry.context or AuditContext()
    if impersonation_id is not None and impersonation_id not in found:
        found[impersonation_id] = SearchResult(
            type="impersonation",
            id=impersonation_id,
            name=context.ticket_id or context.reason or impersonation_id,
            detail=context.reason if context.ticket_id else None,
            user_id=entry.user_id,
            occurred_at=entry.occurred_at,
        )


def _entry(entry: AuditEntry) -> SearchResult:
    detail = entry.request_id or None
    return SearchResult(type="log", id=entry.id, name=entry.key, detail=detail, occurred_at=entry.occurred_at)
