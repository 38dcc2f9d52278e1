"""Organization roles in PostgreSQL."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Select,
    Subquery,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import Lookups, key_lookup
from identity_common.stores.names import has_alike
from stead.event_types import OrganizationRoleType
from template_service.schema import (
    known_resources,
    known_scopes,
    member_roles,
    organizations,
    permissions,
    role_permissions,
    role_scopes,
    roles,
)


class OrganizationRole(msgspec.Struct, frozen=True):
    """An organization role as stored, without what it grants.

    Attributes:
        version: Incremented by every change of the role or of what it grants.
    """

    tenant_id: str
    id: str
    name: str
    type: OrganizationRoleType
    description: str | None = None
    version: int = 1


class Named(msgspec.Struct, frozen=True):
    """The id and name of something related.

    Attributes:
        id: Its id.
        name: Its name.
    """

    id: str
    name: str


class NamedScope(msgspec.Struct, frozen=True):
    """A scope of an API resource, with the id and name of the resource.

    Attributes:
        id: Id of the scope.
        name: The scope token.
        resource: The API resource.
    """

    id: str
    name: str
    resource: Named


class OrganizationRoleWithContents(msgspec.Struct, frozen=True):
    """An organization role and what it grants, each kind by name and then id."""

    role: OrganizationRole
    permissions: tuple[Named, ...]
    scopes: tuple[NamedScope, ...]


_COLUMNS: Final = tuple(roles.c[name] for name in OrganizationRole.__struct_fields__)
_BY_ID: Final = (roles.c.tenant_id == bindparam("tenant"), roles.c.id == bindparam("role"))
_FIND: Final = select(*_COLUMNS).where(*_BY_ID)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_LOCK_EXCLUSIVELY: Final = _FIND.with_for_update()
_UPDATE: Final = update(roles).where(*_BY_ID)
_DELETE: Final = delete(roles).where(*_BY_ID)
# Assignments in a deleted organization are ignored; the fan-out has yet to delete them.
_IS_ASSIGNED: Final = select(
    exists(
        select(member_roles.c.role_id)
        .join(
            organizations,
            (organizations.c.tenant_id == member_roles.c.tenant_id)
            & (organizations.c.id == member_roles.c.organization_id),
        )
        .where(member_roles.c.tenant_id == bindparam("tenant"), member_roles.c.role_id == bindparam("role"))
    )
)

_PERMISSION: Final = func.json_build_object("id", permissions.c.id, "name", permissions.c.name)
_RESOURCE: Final = func.json_build_object("id", known_resources.c.id, "name", known_resources.c.name)
_SCOPE: Final = func.json_build_object("id", known_scopes.c.id, "name", known_scopes.c.name, "resource", _RESOURCE)


def _with_contents(page: Subquery) -> Select[Any]:
    """Return a statement that selects the roles of a page with what they grant.

    The database aggregates to JSON: a role may grant thousands, and a row for each would take ten times as long.
    """
    granted = (
        select(_together(_PERMISSION, permissions))
        .join(
            role_permissions,
            (role_permissions.c.tenant_id == permissions.c.tenant_id)
            & (role_permissions.c.permission_id == permissions.c.id),
        )
        .where(role_permissions.c.tenant_id == page.c.tenant_id, role_permissions.c.role_id == page.c.id)
        .scalar_subquery()
    )
    granted_scopes = (
        select(_together(_SCOPE, known_scopes))
        .join(
            role_scopes,
            (role_scopes.c.tenant_id == known_scopes.c.tenant_id) & (role_scopes.c.scope_id == known_scopes.c.id),
        )
        .join(
            known_resources,
            (known_resources.c.tenant_id == known_scopes.c.tenant_id)
            & (known_resources.c.id == known_scopes.c.resource_id),
        )
        .where(role_scopes.c.tenant_id == page.c.tenant_id, role_scopes.c.role_id == page.c.id)
        .scalar_subquery()
    )
    columns = (page.c[column.name] for column in _COLUMNS)
    return select(*columns, granted.label("granted_permissions"), granted_scopes.label("granted_scopes")).order_by(
        page.c.sort_key, page.c.name, page.c.id
    )


def _together(item: ColumnElement[Any], table: Table) -> ColumnElement[str]:
    """Return the aggregate of these JSON objects, ordered by the name and then the id of a table's rows."""
    return func.coalesce(
        cast(func.json_agg(aggregate_order_by(item, table.c.sort_key, table.c.name, table.c.id)), Text), "[]"
    )


_LIST: Final = PagedList(
    select(*_COLUMNS, roles.c.sort_key)
    .where(roles.c.tenant_id == bindparam("tenant"))
    .order_by(roles.c.sort_key, roles.c.name, roles.c.id),
    searched=(roles.c.name, roles.c.description),
    completed=_with_contents,
)
_decode_permissions = msgspec.json.Decoder(tuple[Named, ...]).decode
_decode_scopes = msgspec.json.Decoder(tuple[NamedScope, ...]).decode


async def has_alike_name(connection: AsyncConnection, role: OrganizationRole) -> bool:
    """Return whether another role has the same name in a form that is not canonical."""
    return await has_alike(connection, roles, role.tenant_id, role.name, other_than=role.id)


async def insert_role(connection: AsyncConnection, role: OrganizationRole) -> None:
    """Store a new role."""
    await connection.execute(insert(roles), msgspec.structs.asdict(role))


async def find_role(lookups: Lookups, tenant_id: str, role_id: str) -> OrganizationRole | None:
    """Return a role, or none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, role_id)
    return OrganizationRole(*rows[0]) if rows else None


async def lock_role(
    connection: AsyncConnection, tenant_id: str, role_id: str, *, exclusive: bool = False
) -> OrganizationRole | None:
    """Return a role, locked against changes until the transaction ends; or none.

    Args:
        connection: Of the transaction.
        tenant_id: The tenant.
        role_id: The role.
        exclusive: Lock it against new assignments as well.
    """
    statement = _LOCK_EXCLUSIVELY if exclusive else _LOCK
    row = (await connection.execute(statement, {"tenant": tenant_id, "role": role_id})).one_or_none()
    return None if row is None else OrganizationRole(*row)


async def is_assigned(connection: AsyncConnection, tenant_id: str, role_id: str) -> bool:
    """Whether a member holds the role."""
    return bool(await connection.scalar(_IS_ASSIGNED, {"tenant": tenant_id, "role": role_id}))


async def update_role(connection: AsyncConnection, role: OrganizationRole) -> None:
    """Store a changed role."""
    values = msgspec.structs.asdict(role)
    by_id = {"tenant": values.pop("tenant_id"), "role": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_role(connection: AsyncConnection, tenant_id: str, role_id: str) -> bool:
    """Delete a role with its grants; return whether it existed. Its assignments stay, ignored, until the fan-out."""
    return bool((await connection.execute(_DELETE, {"tenant": tenant_id, "role": role_id})).rowcount)


async def list_roles(
    connection: AsyncConnection, tenant_id: str, page: Page, *, ids: Sequence[str], role_type: str | None
) -> tuple[list[OrganizationRoleWithContents], int]:
    """Return a page of the roles by name, with what they grant, and their total.

    Args:
        connection: To the database.
        tenant_id: The tenant.
        page: The part to return.
        ids: Only roles with one of these ids; empty for all roles.
        role_type: Only roles of this type; None for all roles.
    """
    values, conditions = {"tenant": tenant_id}, []
    if ids:
        conditions.append(roles.c.id == any_(bindparam("ids", list(ids), ARRAY(Text))))
    if role_type is not None:
        conditions.append(roles.c.type == bindparam("type"))
        values["type"] = role_type
    rows, total = await _LIST.fetch(connection, values, page, where=conditions)
    found = []
    for *columns, granted, granted_scopes in rows:
        role = OrganizationRole(*columns)
        found.append(OrganizationRoleWithContents(role, _decode_permissions(granted), _decode_scopes(granted_scopes)))
    return found, total
