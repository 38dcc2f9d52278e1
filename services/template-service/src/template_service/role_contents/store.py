"""Grants of roles, in PostgreSQL: both organization permissions and scopes of API resources.

Locks are taken in the same order everywhere: roles, then what they grant, each by id.
"""

from collections.abc import Collection
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import (
    ARRAY,
    Column,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    delete,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.postgresql import insert as insert_or_ignore
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from template_service.schema import known_resources, known_scopes, permissions, role_permissions, role_scopes, roles

Content = Literal["permission", "scope"]


class OrganizationPermission(msgspec.Struct, frozen=True):
    """An organization permission as stored.

    Attributes:
        version: Incremented by every change.
    """

    tenant_id: str
    id: str
    name: str
    description: str | None = None
    version: int = 1


class GrantedScope(msgspec.Struct, frozen=True):
    """A scope of an API resource, as known from events."""

    tenant_id: str
    id: str
    name: str
    resource_id: str
    resource_name: str


class _Kind(NamedTuple):
    """The tables of one kind of content."""

    contents: Table
    relation: Table
    content_id: Column[str]


_KINDS: Final[dict[Content, _Kind]] = {
    "permission": _Kind(permissions, role_permissions, role_permissions.c.permission_id),
    "scope": _Kind(known_scopes, role_scopes, role_scopes.c.scope_id),
}
PERMISSION_COLUMNS: Final = tuple(permissions.c[name] for name in OrganizationPermission.__struct_fields__)
SEARCHED_OF_PERMISSION: Final = (permissions.c.name, permissions.c.description)

_TENANT: Final = bindparam("tenant", type_=Text)
_ROLE: Final = bindparam("role", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))

_LOCK_PERMISSIONS: Final = (
    select(permissions.c.id)
    .where(permissions.c.tenant_id == _TENANT, permissions.c.id == any_(_IDS))
    .order_by(permissions.c.id)
    .with_for_update(read=True, key_share=True)
)
_WITH_RESOURCE: Final = (known_resources.c.tenant_id == known_scopes.c.tenant_id) & (
    known_resources.c.id == known_scopes.c.resource_id
)
_LOCK_SCOPES: Final = (
    select(known_scopes.c.id, known_resources.c.indicator)
    .join(known_resources, _WITH_RESOURCE)
    .where(known_scopes.c.tenant_id == _TENANT, known_scopes.c.id == any_(_IDS))
    .order_by(known_scopes.c.id)
    .with_for_update(read=True, key_share=True, of=known_scopes)
)
_LIST_PERMISSIONS: Final = PagedList(
    select(*PERMISSION_COLUMNS)
    .join(
        role_permissions,
        (role_permissions.c.tenant_id == permissions.c.tenant_id)
        & (role_permissions.c.permission_id == permissions.c.id),
    )
    .where(role_permissions.c.tenant_id == _TENANT, role_permissions.c.role_id == _ROLE)
    .order_by(permissions.c.sort_key, permissions.c.name, permissions.c.id),
    searched=SEARCHED_OF_PERMISSION,
)
_LIST_SCOPES: Final = PagedList(
    select(
        known_scopes.c.tenant_id,
        known_scopes.c.id,
        known_scopes.c.name,
        known_scopes.c.resource_id,
        known_resources.c.name.label("resource_name"),
    )
    .join(known_resources, _WITH_RESOURCE)
    .join(
        role_scopes,
        (role_scopes.c.tenant_id == known_scopes.c.tenant_id) & (role_scopes.c.scope_id == known_scopes.c.id),
    )
    .where(role_scopes.c.tenant_id == _TENANT, role_scopes.c.role_id == _ROLE)
    .order_by(known_scopes.c.sort_key, known_scopes.c.name, known_scopes.c.id),
    searched=(known_scopes.c.name, known_resources.c.name),
)


async def lock_permissions(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> set[str]:
    """Return which of these permissions exist; they cannot be deleted until the transaction ends."""
    return set(await connection.scalars(_LOCK_PERMISSIONS, {"tenant": tenant_id, "ids": list(ids)}))


async def lock_scopes(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> dict[str, str]:
    """Return the known ones of these scopes, with the indicator of their resource.

    They are locked against deletion until the transaction ends.
    """
    rows = await connection.execute(_LOCK_SCOPES, {"tenant": tenant_id, "ids": list(ids)})
    return {row.id: row.indicator for row in rows}


async def add(connection: AsyncConnection, tenant_id: str, content: Content, role_id: str, ids: Collection[str]) -> int:
    """Add these, locked by the caller, to what a role grants; return how many are new."""
    _, relation, content_id = _KINDS[content]
    rows = select(_TENANT, _ROLE, func.unnest(_IDS))
    statement = (
        insert_or_ignore(relation).from_select(["tenant_id", "role_id", content_id.name], rows).on_conflict_do_nothing()
    )
    values = {"tenant": tenant_id, "role": role_id, "ids": sorted(set(ids))}
    return (await connection.execute(statement, values)).rowcount


async def remove(
    connection: AsyncConnection, tenant_id: str, content: Content, role_id: str, ids: Collection[str]
) -> int:
    """Remove these from what a role grants; return how many there were."""
    _, relation, content_id = _KINDS[content]
    statement = delete(relation).where(
        relation.c.tenant_id == _TENANT, relation.c.role_id == _ROLE, content_id == any_(_IDS)
    )
    values = {"tenant": tenant_id, "role": role_id, "ids": list(ids)}
    return (await connection.execute(statement, values)).rowcount


async def remove_others(
    connection: AsyncConnection, tenant_id: str, content: Content, role_id: str, ids: Collection[str]
) -> int:
    """Remove all others of this kind from what a role grants; return how many there were."""
    _, relation, content_id = _KINDS[content]
    kept = select(func.unnest(_IDS))
    statement = delete(relation).where(
        relation.c.tenant_id == _TENANT, relation.c.role_id == _ROLE, content_id.not_in(kept)
    )
    values = {"tenant": tenant_id, "role": role_id, "ids": list(ids)}
    return (await connection.execute(statement, values)).rowcount


async def list_permissions_of(
    connection: AsyncConnection, tenant_id: str, role_id: str, page: Page
) -> tuple[list[OrganizationPermission], int]:
    """Return a page of the organization permissions that a role grants, by name, and their total."""
    values = {"tenant": tenant_id, "role": role_id}
    rows, total = await _LIST_PERMISSIONS.fetch(connection, values, page)
    return [OrganizationPermission(*row) for row in rows], total


async def list_scopes_of(
    connection: AsyncConnection, tenant_id: str, role_id: str, page: Page
) -> tuple[list[GrantedScope], int]:
    """Return a page of the scopes of API resources that a role grants, by name and then id, and their total."""
    values = {"tenant": tenant_id, "role": role_id}
    rows, total = await _LIST_SCOPES.fetch(connection, values, page)
    return [GrantedScope(*row) for row in rows], total


def _granting(content: Content) -> Select[Any]:
    _, relation, content_id = _KINDS[content]
    return select(relation.c.role_id).where(relation.c.tenant_id == _TENANT, content_id == any_(_IDS)).distinct()


async def roles_granting(
    connection: AsyncConnection, tenant_id: str, content: Content, ids: Collection[str]
) -> list[str]:
    """Return the ids of the roles that grant any of these, sorted."""
    statement = _granting(content).order_by(literal_column("1"))
    return list(await connection.scalars(statement, {"tenant": tenant_id, "ids": list(ids)}))


async def lock_with_roles(
    connection: AsyncConnection, tenant_id: str, content: Content, ids: Collection[str]
) -> tuple[list[str], list[str]]:
    """Lock contents against changes and new grants, and every role that grants any of them; return the ids of both.

    Between the two locks, one of them may be added to another role; reading the roles again finds that one. Locking it
    then would be out of order, and might deadlock with the transaction that holds it: all locks are released and taken
    again.
    """
    contents = _KINDS[content].contents
    lock_roles = (
        select(roles.c.id)
        .where(roles.c.tenant_id == _TENANT, roles.c.id.in_(_granting(content)))
        .order_by(roles.c.id)
        .with_for_update(key_share=True)
    )
    lock_contents = (
        select(contents.c.id)
        .where(contents.c.tenant_id == _TENANT, contents.c.id == any_(_IDS))
        .order_by(contents.c.id)
        .with_for_update()
    )
    values = {"tenant": tenant_id, "ids": list(ids)}
    while True:
        attempt = await connection.begin_nested()
        locked = list(await connection.scalars(lock_roles, values))
        found = list(await connection.scalars(lock_contents, values))
        if set(await roles_granting(connection, tenant_id, content, ids)) <= set(locked):
            await attempt.commit()
            return found, locked
        await attempt.rollback()
