"""API roles, and the scopes that they grant, in PostgreSQL."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from sqlalchemy import ARRAY, Text, any_, bindparam, delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import Lookups, key_lookup
from identity_common.stores.names import has_alike
from identity_common.wire.events import RoleType
from management_service.resources.store import SCOPE_COLUMNS, SEARCHED_SCOPE_COLUMNS, Scope
from management_service.schema import application_roles, role_scopes, roles, scopes, user_roles


class Role(msgspec.Struct, frozen=True):
    """An API role as stored; its scopes are relations."""

    tenant_id: str
    id: str
    name: str
    description: str
    type: RoleType
    created_at: int
    is_default: bool = False


class RoleFilter(msgspec.Struct, frozen=True):
    """A filter of roles; None does not restrict the list.

    Attributes:
        type: Of this type.
        not_of_user_id: Those that this user does not hold.
        not_of_application_id: Those that this application does not hold.
    """

    type: str | None = None
    not_of_user_id: str | None = None
    not_of_application_id: str | None = None


ROLE_COLUMNS: Final = tuple(roles.c[name] for name in Role.__struct_fields__)
SEARCHED: Final = (roles.c.name, roles.c.description)

_BY_ID: Final = (roles.c.tenant_id == bindparam("tenant"), roles.c.id == bindparam("role"))
_FIND: Final = select(*ROLE_COLUMNS).where(*_BY_ID)
_LOOK_UP: Final = key_lookup(_FIND)
_FIND_BY_NAME: Final = select(*ROLE_COLUMNS).where(
    roles.c.tenant_id == bindparam("tenant"), roles.c.name == bindparam("name")
)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_UPDATE: Final = update(roles).where(*_BY_ID)
_DELETE: Final = delete(roles).where(*_BY_ID)
_LIST: Final = PagedList(
    select(*ROLE_COLUMNS)
    .where(roles.c.tenant_id == bindparam("tenant"))
    .order_by(roles.c.sort_key, roles.c.name, roles.c.id),
    searched=SEARCHED,
)
_HELD_BY_USER: Final = (
    select(user_roles.c.role_id)
    .where(
        user_roles.c.tenant_id == roles.c.tenant_id,
        user_roles.c.role_id == roles.c.id,
        user_roles.c.user_id == bindparam("user"),
    )
    .exists()
)
_HELD_BY_APPLICATION: Final = (
    select(application_roles.c.role_id)
    .where(
        application_roles.c.tenant_id == roles.c.tenant_id,
        application_roles.c.role_id == roles.c.id,
        application_roles.c.application_id == bindparam("application"),
    )
    .exists()
)
# Locked in the order of ids, so that two transactions cannot deadlock.
_LOCK_SCOPES: Final = (
    select(scopes.c.id)
    .where(scopes.c.tenant_id == bindparam("tenant"), scopes.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .order_by(scopes.c.id)
    .with_for_update(read=True, key_share=True)
)
_GRANTED: Final = (role_scopes.c.tenant_id == bindparam("tenant"), role_scopes.c.role_id == bindparam("role"))
_SCOPE_IDS: Final = select(role_scopes.c.scope_id).where(*_GRANTED).order_by(role_scopes.c.scope_id)
_LIST_SCOPES: Final = PagedList(
    select(*SCOPE_COLUMNS)
    .join(role_scopes, (role_scopes.c.tenant_id == scopes.c.tenant_id) & (role_scopes.c.scope_id == scopes.c.id))
    .where(*_GRANTED)
    .order_by(scopes.c.sort_key, scopes.c.name, scopes.c.id),
    searched=SEARCHED_SCOPE_COLUMNS,
)
_REVOKE: Final = delete(role_scopes).where(
    *_GRANTED, role_scopes.c.scope_id == any_(bindparam("ids", type_=ARRAY(Text)))
)


async def has_alike_name(connection: AsyncConnection, role: Role) -> bool:
    """Return whether another role has the same name in a form that is not canonical."""
    return await has_alike(connection, roles, role.tenant_id, role.name, other_than=role.id)


async def insert_role(connection: AsyncConnection, role: Role) -> None:
    """Store a new role."""
    await connection.execute(insert(roles), msgspec.structs.asdict(role))


async def find_role(lookups: Lookups, tenant_id: str, role_id: str) -> Role | None:
    """Return a role; None if there is none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, role_id)
    return Role(*rows[0]) if rows else None


async def find_role_by_name(connection: AsyncConnection, tenant_id: str, name: str) -> Role | None:
    """Return the role with this name; None if there is none."""
    row = (await connection.execute(_FIND_BY_NAME, {"tenant": tenant_id, "name": name})).one_or_none()
    return None if row is None else Role(*row)


async def lock_role(connection: AsyncConnection, tenant_id: str, role_id: str) -> Role | None:
    """Return a role, locked against changes until the transaction ends; None if there is none."""
    row = (await connection.execute(_LOCK, {"tenant": tenant_id, "role": role_id})).one_or_none()
    return None if row is None else Role(*row)


async def update_role(connection: AsyncConnection, role: Role) -> None:
    """Store a changed role."""
    values = msgspec.structs.asdict(role)
    by_id = {"tenant": values.pop("tenant_id"), "role": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_role(connection: AsyncConnection, tenant_id: str, role_id: str) -> bool:
    """Delete a role with its relations; return whether it existed."""
    return bool((await connection.execute(_DELETE, {"tenant": tenant_id, "role": role_id})).rowcount)


async def list_roles(
    connection: AsyncConnection, tenant_id: str, page: Page, only: RoleFilter
) -> tuple[list[Role], int]:
    """Return a page of the roles, by name, and their total."""
    values, conditions = {"tenant": tenant_id}, []
    for value, name, condition in (
        (only.type, "type", roles.c.type == bindparam("type")),
        (only.not_of_user_id, "user", ~_HELD_BY_USER),
        (only.not_of_application_id, "application", ~_HELD_BY_APPLICATION),
    ):
        if value is not None:
            conditions.append(condition)
            values[name] = value
    rows, total = await _LIST.fetch(connection, values, page, where=conditions)
    return [Role(*row) for row in rows], total


async def lock_scopes(connection: AsyncConnection, tenant_id: str, scope_ids: Collection[str]) -> set[str]:
    """Return the scopes that exist, locked against deletion until the transaction ends."""
    return set(await connection.scalars(_LOCK_SCOPES, {"tenant": tenant_id, "ids": list(scope_ids)}))


async def granted_scope_ids(connection: AsyncConnection, tenant_id: str, role_id: str) -> tuple[str, ...]:
    """Return the ids of the scopes that a role grants, sorted."""
    return tuple(await connection.scalars(_SCOPE_IDS, {"tenant": tenant_id, "role": role_id}))


async def grant_scopes(connection: AsyncConnection, tenant_id: str, role_id: str, scope_ids: Sequence[str]) -> None:
    """Add scopes to those that a role grants."""
    if scope_ids:
        rows = [{"tenant_id": tenant_id, "role_id": role_id, "scope_id": scope_id} for scope_id in scope_ids]
        await connection.execute(insert_or_ignore(role_scopes).on_conflict_do_nothing(), rows)


async def revoke_scopes(connection: AsyncConnection, tenant_id: str, role_id: str, scope_ids: Collection[str]) -> int:
    """Remove scopes from those that a role grants; return how many it granted."""
    values = {"tenant": tenant_id, "role": role_id, "ids": list(scope_ids)}
    return (await connection.execute(_REVOKE, values)).rowcount


async def list_granted_scopes(
    connection: AsyncConnection, tenant_id: str, role_id: str, page: Page
) -> tuple[list[Scope], int]:
    """Return a page of the scopes that a role grants, by name and then id, and their total."""
    values = {"tenant": tenant_id, "role": role_id}
    rows, total = await _LIST_SCOPES.fetch(connection, values, page)
    return [Scope(*row) for row in rows], total
