"""Finds named objects in PostgreSQL: by id, by what identifies them, by the beginning of the name, and by words.

Does not own which objects there are: each service lists its ``Searched``.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    func,
    literal_column,
    null,
    select,
    true,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.names import sort_key
from identity_common.stores.words import has_words, words_of
from identity_common.wire.search import SearchGroup, SearchGroupName, SearchResult, SearchResultType
from identity_common.words import prefix_query

_MAX_MATCHES: Final = 200
"""How many objects that have the words are ordered by name: a word may be in all of them."""
_READ_PER_RESULT: Final = 3
"""How many objects are read first, in the order of names: the index of words lists all matches, whatever the limit."""
_BEGINNING_OF_AN_ID: Final = re.compile("[0-9a-z]{6,}")
_LAST: Final = "\U0010ffff"
_LINKS: Final = ("resource_id",)
_SIZE: Final = bindparam("size", type_=BigInteger)


class Searched(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Objects of a kind, and what a result shows of them.

    Attributes:
        group: The name of their group.
        type: The type of each.
        table: Their table, which has ``name`` and ``sort_key``.
        words: The columns whose words are searched.
        name: The name that is shown, by default ``name``.
        detail: What tells objects with the same name apart; None for nothing.
        keys: Columns that identify an object, and how each is normalized.
        links: Members of a result that its page needs, of ``_LINKS``.
        is_long: Whether the list has an index in the order of the names.
    """

    group: SearchGroupName
    type: SearchResultType
    table: Table
    words: tuple[str, ...]
    name: ColumnElement[Any] | None = None
    detail: ColumnElement[Any] | None = None
    keys: Mapping[str, Callable[[str], str]] = {}
    links: Mapping[str, ColumnElement[Any]] = {}
    is_long: bool = False


async def search_objects(
    connection: AsyncConnection, searched: tuple[Searched, ...], tenant_id: str, text: str, *, limit: int
) -> list[SearchGroup]:
    """Return the objects of each kind that match a text, the best first: the one that it identifies, then by name."""
    if not searched:
        return []
    key, is_beginning = sort_key(text), _BEGINNING_OF_AN_ID.fullmatch(text)
    values = {
        "tenant": tenant_id,
        "id": text,
        "id_end": f"{text}~" if is_beginning else text,
        "first": key,
        "last": key + _LAST,
        "query": prefix_query(text),
        "size": limit + 1,
        **{f"key_{column}": normalized(text) for each in searched for column, normalized in each.keys.items()},
    }
    rows = (await connection.execute(search_statement(searched), values)).all()
    return [_group(each, [row for row in rows if row.kind == kind], limit=limit) for kind, each in enumerate(searched)]


@functools.cache
def search_statement(searched: tuple[Searched, ...]) -> Select[Any]:
    """Return the statement that finds objects of some kinds: building it takes longer than PostgreSQL needs for it."""
    found = union_all(*(_of_kind(*each).subquery().select() for each in enumerate(searched))).subquery()
    return select(found).order_by(found.c.kind, found.c.rank, found.c.sort_key, found.c.id)


def _of_kind(kind: int, searched: Searched) -> Select[Any]:
    """Return the statement that finds objects of one kind; each of its parts uses an index."""
    table = searched.table
    shown = (
        table.c.id,
        (table.c.name if searched.name is None else searched.name).label("shown_name"),
        (null() if searched.detail is None else searched.detail).label("detail"),
        *(searched.links.get(member, cast(null(), Text)).label(member) for member in _LINKS),
        table.c.sort_key,
    )

    def part(rank: int, condition: ColumnElement[bool]) -> Select[Any]:
        of_tenant = table.c.tenant_id == bindparam("tenant", type_=Text)
        return select(literal_column(str(rank)).label("rank"), *shown).where(of_tenant, condition)

    of_id = table.c.id.between(bindparam("id", type_=Text), bindparam("id_end", type_=Text))
    parts = [part(0, of_id).limit(_SIZE)]
    parts += [part(0, table.c[column] == bindparam(f"key_{column}", type_=Text)) for column in searched.keys]
    words = words_of(*searched.words)
    with_words = part(2, has_words(words)).limit(literal_column(str(_MAX_MATCHES)))
    if searched.is_long:
        by_name = (table.c.sort_key, table.c.name, table.c.id)
        first, last = bindparam("first", type_=Text), bindparam("last", type_=Text)
        named = part(1, (table.c.sort_key >= first) & (table.c.sort_key < last)).order_by(*by_name).limit(_SIZE).cte()
        with_their_words = part(2, true()).add_columns(literal_column(words).label("words")).order_by(*by_name)
        frequent = _first_of(with_their_words).where(_are_too_few(named)).limit(_SIZE).cte()
        parts += [select(named), select(frequent)]
        with_words = with_words.where(_are_too_few(named), _are_too_few(frequent))
    parts.append(with_words)
    found = union_all(*(each.subquery().select() for each in parts)).subquery()
    rank = func.min(found.c.rank)
    others = [column for column in found.c if column.name != "rank"]
    ordered = select(literal_column(str(kind)).label("kind"), rank.label("rank"), *others).group_by(*others)
    return ordered.order_by(rank, found.c.sort_key, found.c.id).limit(_SIZE)


def _first_of(with_their_words: Select[Any]) -> Select[Any]:
    """Return the statement that finds, among the first objects of these, those that have the words."""
    first = with_their_words.limit(_SIZE * literal_column(str(_READ_PER_RESULT))).subquery()
    return select(*(column for column in first.c if column.name != "words")).where(has_words("words"))


def _are_too_few(found: CTE) -> ColumnElement[bool]:
    """Return whether these do not fill an answer; PostgreSQL asks this before it reads rows for the same condition."""
    return select(func.count()).select_from(found).scalar_subquery() < _SIZE


def _group(searched: Searched, rows: Sequence[Any], *, limit: int) -> SearchGroup:
    return SearchGroup(searched.group, [_result(searched, row) for row in rows[:limit]], has_more=len(rows) > limit)


def _result(searched: Searched, row: Any) -> SearchResult:
    links = {member: getattr(row, member) for member in searched.links}
    detail = None if row.detail == row.shown_name else row.detail or None
    return SearchResult(type=searched.type, id=row.id, name=row.shown_name, detail=detail, **links)
