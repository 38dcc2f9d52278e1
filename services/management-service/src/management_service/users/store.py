"""Users in PostgreSQL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    ColumnElement,
    Select,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    collate,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.authentication import FactorKind
from identity_common.paging import Page
from identity_common.search import identity_key, search_key, search_term
from identity_common.stores.database import is_none_of
from identity_common.stores.lookups import Lookups, key_lookup
from management_service.phone_numbers import is_phone_number, literal_phone_key, phone_key
from management_service.schema import identities, roles, user_counts, user_roles, users
from management_service.users.rules import FieldSearch, SearchField, UserSearch, canonical

_encode: Final = msgspec.json.Encoder().encode


class User(msgspec.Struct, frozen=True):
    """A user as stored, without the password hash.

    Attributes:
        custom_data: JSON.
        profile: JSON.
        tokens_valid_after: Milliseconds since the epoch; tokens issued earlier are invalid.
        allows_password: Whether a password counts although a connector has the user's address.
        second_factors: Kinds of the second factors that are set up, sorted; ``factors`` keeps it.
    """

    tenant_id: str
    id: str
    created_at: int
    updated_at: int
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    external_id: str | None = None
    is_email_verified: bool = False
    allows_password: bool = False
    has_password: bool = False
    is_suspended: bool = False
    tokens_valid_after: int = 0
    custom_data: str = "{}"
    profile: str = "{}"
    second_factors: Sequence[FactorKind] = ()

    @property
    def identifier(self) -> str | None:
        """What the user can sign in with; None if the user has none of ``administrators.IDENTIFIERS``."""
        return self.username or self.primary_email or self.primary_phone


_STORED: Final = tuple(field for field in User.__struct_fields__ if field != "has_password")
_HAS_PASSWORD: Final = users.c.password_hash.is_not(None).label("has_password")
COLUMNS: Final = tuple(users.c.get(name, _HAS_PASSWORD) for name in User.__struct_fields__)

_BY_ID: Final = (users.c.tenant_id == bindparam("tenant"), users.c.id == bindparam("user"))
_FIND: Final = select(*COLUMNS).where(*_BY_ID)
_FIND_BY_EMAIL: Final = select(*COLUMNS).where(
    users.c.tenant_id == bindparam("tenant"), users.c.primary_email_key == bindparam("email")
)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_ADDED: Final = (
    insert(users)
    .values({column.name: bindparam(column.name, type_=column.type) for column in users.c if column.computed is None})
    .returning(users.c.tenant_id, users.c.id)
    .cte("added")
)
# One statement: each round trip is a tenth of a creation. The roles are locked, so that this waits for a concurrent
# deletion and leaves the role out; as everywhere, after the user.
_INSERT: Final = (
    insert(user_roles)
    .from_select(
        ["tenant_id", "user_id", "role_id"],
        select(_ADDED.c.tenant_id, _ADDED.c.id, roles.c.id)
        .join(roles, roles.c.tenant_id == _ADDED.c.tenant_id)
        .where(roles.c.is_default, roles.c.type == literal("User"))
        .with_for_update(read=True, key_share=True, of=roles),
    )
    .returning(user_roles.c.role_id)
)
_COLUMNS_OF_NEW: Final = [column.name for column in users.c if column.computed is None]
_NEW: Final = func.json_populate_recordset(
    literal_column("NULL::users"), cast(bindparam("rows", type_=Text), JSON)
).table_valued(*_COLUMNS_OF_NEW, name="new")
_ADDED_OF_MANY: Final = (
    postgresql.insert(users)
    .from_select(_COLUMNS_OF_NEW, select(*(_NEW.c[name] for name in _COLUMNS_OF_NEW)))
    .on_conflict_do_nothing()
    .returning(users.c.tenant_id, users.c.id)
    .cte("added")
)
_GRANTED_TO_MANY: Final = (
    insert(user_roles)
    .from_select(
        ["tenant_id", "user_id", "role_id"],
        select(_ADDED_OF_MANY.c.tenant_id, _ADDED_OF_MANY.c.id, roles.c.id)
        .join(roles, roles.c.tenant_id == _ADDED_OF_MANY.c.tenant_id)
        .where(roles.c.is_default, roles.c.type == literal("User"))
        .with_for_update(read=True, key_share=True, of=roles),
    )
    .returning(user_roles.c.user_id, user_roles.c.role_id)
    .cte("granted")
)
_INSERT_MANY: Final = select(_ADDED_OF_MANY.c.id, _GRANTED_TO_MANY.c.role_id).outerjoin(
    _GRANTED_TO_MANY, _GRANTED_TO_MANY.c.user_id == _ADDED_OF_MANY.c.id
)


def _having_one_of(name: str) -> Select[Any]:
    """Return the statement that finds the ids of the users with one of these unique keys, each by a look-up.

    With ``= ANY``, PostgreSQL reads all users for each batch of an import until the table is analyzed: only equality
    with a whole unique key tells it, without statistics, that it finds one row.
    """
    keys = func.unnest(bindparam(name, type_=ARRAY(Text))).table_valued("key").render_derived()
    of_key = select(users.c.id).where(users.c.tenant_id == bindparam("tenant"), users.c[name] == keys.c.key)
    found = of_key.limit(literal_column("1")).lateral()
    return select(keys.c.key, found.c.id).join_from(keys, found, true())


BY_EXTERNAL_ID: Final = _having_one_of("external_id")
_UNIQUE_KEYS: Final[Mapping[str, str]] = {
    "users_username_unique": "username_key",
    "users_primary_email_unique": "primary_email_key",
    "users_primary_phone_unique": "primary_phone_key",
}
KEYS_IN_USE: Final = union_all(
    *(
        _having_one_of(name).add_columns(literal(constraint).label("constraint"))
        for constraint, name in _UNIQUE_KEYS.items()
    )
)
_UPDATE: Final = update(users).where(*_BY_ID)
_WITH_PHONE_KEY: Final = select(users.c.id).where(
    users.c.tenant_id == bindparam("tenant"),
    users.c.primary_phone_key == bindparam("phone"),
    users.c.id != bindparam("user"),
)
_SIGNED_IN_IDENTITIES: Final = (
    select(identities.c.id)
    .where(
        identities.c.tenant_id == bindparam("tenant"),
        identities.c.user_id == bindparam("user"),
        identities.c.signed_in_at.is_not(None),
    )
    .order_by(identities.c.id)
)
_DELETE: Final = delete(users).where(*_BY_ID)
_IN_TENANT: Final = select(users.c.id, users.c.name, users.c.sort_key).where(users.c.tenant_id == bindparam("tenant"))
_COUNT_ALL: Final = select(cast(func.sum(user_counts.c.users), BigInteger)).where(
    user_counts.c.tenant_id == bindparam("tenant")
)
_SIZE: Final = bindparam("size", type_=BigInteger)
_OFFSET: Final = bindparam("offset", type_=BigInteger)
# A search scans every user's key, as there is no trigram index; strpos() has no wildcards to escape. OFFSET 0 keeps the
# planner from walking the index of names and testing one user after the other until a page is full.
_UNINDEXED: Final[ColumnElement[int]] = literal_column("0")
_HOLDS_ROLE: Final = (
    select(user_roles.c.role_id)
    .where(
        user_roles.c.tenant_id == users.c.tenant_id,
        user_roles.c.user_id == users.c.id,
        user_roles.c.role_id == bindparam("role"),
    )
    .exists()
)
_ESCAPED: Final = str.maketrans({"\\": "\\\\", "_": "\\_"})
_NAME: Final = func.lower(collate(users.c.name, "default"))  # with the collation "C", lower() knows ASCII only
_FIELDS: Final[Mapping[SearchField, tuple[ColumnElement[Any], Callable[[str], str]]]] = {
    "id": (users.c.id, str),
    "externalId": (users.c.external_id, str),
    "username": (users.c.username_key, identity_key),
    "primaryEmail": (users.c.primary_email_key, identity_key),
    "primaryPhone": (users.c.primary_phone_key, lambda phone: phone.replace("+", "")),
    "name": (_NAME, canonical),
}
"""The searchable fields: the column of each, and how a search text is normalized for it."""


def user_from(row: Iterable[Any]) -> User:
    """Return the user of a row with ``COLUMNS``."""
    return User(*row)


def _keys(user: User) -> dict[str, Any]:
    return {
        "username_key": identity_key(user.username) if user.username is not None else None,
        "primary_email_key": identity_key(user.primary_email) if user.primary_email is not None else None,
        "primary_phone_key": phone_key(user.primary_phone) if user.primary_phone is not None else None,
        "search_key": search_key(
            user.id, user.external_id, user.username, user.primary_email, user.primary_phone, user.name
        ),
    }


def _values(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in _STORED} | _keys(user)


def conditions_of(search: str) -> Sequence[ColumnElement[bool]]:
    """Return the conditions on users that match a search; none without a search."""
    return [_contains(search_term(search))] if search else []


def _contains(term: str) -> ColumnElement[bool]:
    contains = func.strpos(users.c.search_key, literal(term, Text)) > 0
    return or_(contains, _has_phone(term)) if is_phone_number(term) else contains


def _has_phone(phone: str) -> ColumnElement[bool]:
    """Whether a user has this number, in any notation."""
    return users.c.primary_phone_key.in_([phone_key(phone), literal_phone_key(phone)])


async def has_legacy_phone(connection: AsyncConnection, user: User) -> bool:
    """Whether another user has kept the key of an earlier release for this user's phone number in this notation.

    The unique constraint compares keys only, and that of a new number is canonical.
    """
    phone = user.primary_phone or ""
    key = literal_phone_key(phone)
    if key == phone_key(phone):
        return False
    values = {"tenant": user.tenant_id, "phone": key, "user": user.id}
    return (await connection.execute(_WITH_PHONE_KEY, values)).first() is not None


async def insert_user(connection: AsyncConnection, user: User, *, password_hash: str | None) -> tuple[str, ...]:
    """Store a new user with the default roles; return their sorted ids."""
    return tuple(sorted(await connection.scalars(_INSERT, _values(user) | {"password_hash": password_hash})))


async def insert_users(
    connection: AsyncConnection, moved: Sequence[tuple[User, str | None]]
) -> tuple[set[str], tuple[str, ...]]:
    """Store new users, with the digests of their passwords and the default roles, except those with a key in use.

    Waits for a concurrent transaction that stores the same key.

    Returns:
        The ids of those that were stored, and the sorted ids of the default roles.
    """
    rows = [_values(user) | {"password_hash": digest} for user, digest in moved]
    found = (await connection.execute(_INSERT_MANY, {"rows": _encode(rows).decode()})).all()
    return {user_id for user_id, _ in found}, tuple(sorted({role_id for _, role_id in found if role_id is not None}))


async def find_by_external_ids(
    connection: AsyncConnection, tenant_id: str, external_ids: Sequence[str]
) -> dict[str, str]:
    """Return the ids of the users with these external ids, by external id."""
    rows = await connection.execute(BY_EXTERNAL_ID, {"tenant": tenant_id, "external_id": list(external_ids)})
    return {row.key: row.id for row in rows}


async def find_conflicts(connection: AsyncConnection, tenant_id: str, refused: Sequence[User]) -> dict[str, str]:
    """Return the constraint that keeps each of these users, by id, from being stored; without those that none does."""
    keys = {user.id: _keys(user) for user in refused}
    given = {name: [each[name] for each in keys.values() if each[name] is not None] for name in _UNIQUE_KEYS.values()}
    rows = await connection.execute(KEYS_IN_USE, {"tenant": tenant_id, **given})
    in_use = {(row.constraint, row.key) for row in rows}
    return {
        user_id: constraint
        for user_id, of_user in keys.items()
        for constraint, name in reversed([*_UNIQUE_KEYS.items()])
        if (constraint, of_user[name]) in in_use
    }


async def look_up_user(lookups: Lookups, tenant_id: str, user_id: str) -> User | None:
    """Return a user; None if there is none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, user_id)
    return user_from(rows[0]) if rows else None


async def find_user(connection: AsyncConnection, tenant_id: str, user_id: str) -> User | None:
    """Return a user like ``look_up_user``, between other statements of a connection."""
    row = (await connection.execute(_FIND, {"tenant": tenant_id, "user": user_id})).one_or_none()
    return None if row is None else user_from(row)


async def find_user_by_email(connection: AsyncConnection, tenant_id: str, address: str) -> User | None:
    """Return the user with this primary e-mail address, regardless of case; None if there is none."""
    values = {"tenant": tenant_id, "email": identity_key(address)}
    row = (await connection.execute(_FIND_BY_EMAIL, values)).one_or_none()
    return None if row is None else user_from(row)


async def lock_user(connection: AsyncConnection, tenant_id: str, user_id: str) -> User | None:
    """Return a user, locked against changes until the transaction ends; None if there is none."""
    row = (await connection.execute(_LOCK, {"tenant": tenant_id, "user": user_id})).one_or_none()
    return None if row is None else user_from(row)


async def update_user(connection: AsyncConnection, user: User, *, password_hash: str | None = None) -> None:
    """Store a changed user; without a hash, the password is kept."""
    values = _values(user)
    by_id = {"tenant": values.pop("tenant_id"), "user": values.pop("id")}
    if password_hash is not None:
        values["password_hash"] = password_hash
    is_same_phone = users.c.primary_phone.is_not_distinct_from(literal(user.primary_phone, Text))
    # An unchanged number keeps its key: it may be that of an earlier release, and the canonical one another user's.
    values["primary_phone_key"] = case(
        (is_same_phone, users.c.primary_phone_key), else_=literal(values["primary_phone_key"], Text)
    )
    await connection.execute(_UPDATE.values(values), by_id)


async def signed_in_identities(connection: AsyncConnection, tenant_id: str, user_id: str) -> list[str]:
    """Return the sorted ids of the identities with which a user has signed in; the user is locked from then on."""
    if await lock_user(connection, tenant_id, user_id) is None:
        return []
    return list(await connection.scalars(_SIGNED_IN_IDENTITIES, {"tenant": tenant_id, "user": user_id}))


async def delete_user(connection: AsyncConnection, tenant_id: str, user_id: str) -> bool:
    """Delete a user with its relations; return whether it existed."""
    return bool((await connection.execute(_DELETE, {"tenant": tenant_id, "user": user_id})).rowcount)


async def list_users(
    connection: AsyncConnection, tenant_id: str, page: Page, search: UserSearch, *, without: Sequence[str]
) -> tuple[list[User], int]:
    """Return a page of the matching users, except the ids in ``without``, by name and then id, and their total.

    The page is found in an index of names and ids; only its own rows are read.
    """
    matching, values = _IN_TENANT, {"tenant": tenant_id}
    if without:
        matching = matching.where(is_none_of(users.c.id, without)).offset(_UNINDEXED)
    if search.ids:
        matching = matching.where(users.c.id == any_(bindparam("ids", list(search.ids), ARRAY(Text))))
    if search.without_role_id is not None:
        matching = matching.where(~_HOLDS_ROLE)
        values["role"] = search.without_role_id
    conditions = [_field_matches(each) for each in search.fields]
    if term := search_term(search.text):
        conditions.append(_contains(term))
    if conditions:
        join = and_ if search.joint == "and" else or_
        matching = matching.where(join(*conditions)).offset(_UNINDEXED)
    is_whole = matching is _IN_TENANT
    total = await connection.scalar(_COUNT_ALL if is_whole else _count_of(matching), values)
    statement = _PAGE_OF_ALL if is_whole else _page_of(matching)
    rows = (await connection.execute(statement, {**values, "size": page.size, "offset": page.offset})).all()
    return [user_from(row) for row in rows], total or 0


def _count_of(matching: Select[Any]) -> Select[Any]:
    return select(func.count()).select_from(matching.subquery())


def _page_of(matching: Select[Any]) -> Select[Any]:
    found = matching.subquery()
    order = (found.c.sort_key, found.c.name, found.c.id)
    ids = select(found.c.id).order_by(*order).limit(_SIZE).offset(_OFFSET).subquery()
    return (
        select(*COLUMNS)
        .join(ids, users.c.id == ids.c.id)
        .where(users.c.tenant_id == bindparam("tenant"))
        .order_by(users.c.sort_key, users.c.name, users.c.id)
    )


_PAGE_OF_ALL: Final = _page_of(_IN_TENANT)


def _field_matches(search: FieldSearch) -> ColumnElement[bool]:
    if search.field == "primaryPhone" and (search.mode == "exact" or "%" not in search.text):
        return _has_phone(search.text)
    column, key = _FIELDS[search.field]
    text = key(search.text)
    wanted: ColumnElement[str] = literal(text.translate(_ESCAPED) if search.mode == "like" else text, type_=Text)
    if search.field == "name":
        wanted = func.lower(collate(wanted, "default"))
    return column.like(wanted) if search.mode == "like" else column == wanted
