"""API resources and their scopes in PostgreSQL."""

from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import Lookups, key_lookup
from management_service.schema import resources, scopes


class Resource(msgspec.Struct, frozen=True):
    """An API resource as stored.

    Attributes:
        tokens_valid_after: See ``ResourceState``.
    """

    tenant_id: str
    id: str
    name: str
    indicator: str
    access_token_ttl_s: int
    created_at: int
    tokens_valid_after: int = 0
    is_default: bool = False


class Scope(msgspec.Struct, frozen=True):
    """A scope of an API resource as stored."""

    tenant_id: str
    id: str
    resource_id: str
    name: str
    created_at: int
    description: str | None = None


RESOURCE_COLUMNS: Final = tuple(resources.c[name] for name in Resource.__struct_fields__)
SCOPE_COLUMNS: Final = tuple(scopes.c[name] for name in Scope.__struct_fields__)
SEARCHED_SCOPE_COLUMNS: Final = (scopes.c.name, scopes.c.description)

_RESOURCE: Final = (resources.c.tenant_id == bindparam("tenant"), resources.c.id == bindparam("resource"))
_FIND: Final = select(*RESOURCE_COLUMNS).where(*_RESOURCE)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update(key_share=True)
_FIND_BY_INDICATOR: Final = select(*RESOURCE_COLUMNS).where(
    resources.c.tenant_id == bindparam("tenant"), resources.c.indicator == bindparam("indicator")
)
_LOCK_ALL: Final = (
    select(*RESOURCE_COLUMNS)
    .where(resources.c.tenant_id == bindparam("tenant"))
    .order_by(resources.c.id)
    .with_for_update(key_share=True)
)
_UPDATE: Final = update(resources).where(*_RESOURCE)
_DELETE: Final = delete(resources).where(*_RESOURCE)
_LIST: Final = PagedList(
    select(*RESOURCE_COLUMNS)
    .where(resources.c.tenant_id == bindparam("tenant"))
    .order_by(resources.c.sort_key, resources.c.name, resources.c.id),
    searched=(resources.c.name, resources.c.indicator),
)
_SCOPES: Final = (scopes.c.tenant_id == bindparam("tenant"), scopes.c.resource_id == bindparam("resource"))
_SCOPE_IDS: Final = select(scopes.c.id).where(*_SCOPES).order_by(scopes.c.id)
_LIST_SCOPES: Final = PagedList(
    select(*SCOPE_COLUMNS).where(*_SCOPES).order_by(scopes.c.sort_key, scopes.c.name, scopes.c.id),
    searched=SEARCHED_SCOPE_COLUMNS,
)
_SCOPE: Final = (*_SCOPES, scopes.c.id == bindparam("scope"))
_LOCK_SCOPE: Final = select(*SCOPE_COLUMNS).where(*_SCOPE).with_for_update(key_share=True)
_UPDATE_SCOPE: Final = update(scopes).where(*_SCOPE)
_DELETE_SCOPE: Final = delete(scopes).where(*_SCOPE)


async def insert_resource(connection: AsyncConnection, resource: Resource) -> None:
    """Store a new resource."""
    await connection.execute(insert(resources), msgspec.structs.asdict(resource))


async def find_resource(lookups: Lookups, tenant_id: str, resource_id: str) -> Resource | None:
    """Return a resource; None if there is none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, resource_id)
    return Resource(*rows[0]) if rows else None


async def find_resource_by_indicator(connection: AsyncConnection, tenant_id: str, indicator: str) -> Resource | None:
    """Return the resource with this indicator; None if there is none."""
    values = {"tenant": tenant_id, "indicator": indicator}
    row = (await connection.execute(_FIND_BY_INDICATOR, values)).one_or_none()
    return None if row is None else Resource(*row)


async def lock_resource(connection: AsyncConnection, tenant_id: str, resource_id: str) -> Resource | None:
    """Return a resource, locked against changes until the transaction ends; None if there is none."""
    row = (await connection.execute(_LOCK, {"tenant": tenant_id, "resource": resource_id})).one_or_none()
    return None if row is None else Resource(*row)


async def lock_resources(connection: AsyncConnection, tenant_id: str) -> list[Resource]:
    """Return all resources by id, locked against changes until the transaction ends."""
    rows = await connection.execute(_LOCK_ALL, {"tenant": tenant_id})
    return [Resource(*row) for row in rows]


async def update_resource(connection: AsyncConnection, resource: Resource) -> None:
    """Store a changed resource."""
    values = msgspec.structs.asdict(resource)
    by_id = {"tenant": values.pop("tenant_id"), "resource": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_resource(connection: AsyncConnection, tenant_id: str, resource_id: str) -> Sequence[str]:
    """Delete a resource with its scopes; return the ids of the scopes."""
    values = {"tenant": tenant_id, "resource": resource_id}
    scope_ids = (await connection.scalars(_SCOPE_IDS, values)).all()
    await connection.execute(_DELETE, values)
    return scope_ids


async def list_resources(connection: AsyncConnection, tenant_id: str, page: Page) -> tuple[list[Resource], int]:
    """Return a page of the resources, by name and then id, and their total."""
    rows, total = await _LIST.fetch(connection, {"tenant": tenant_id}, page)
    return [Resource(*row) for row in rows], total


async def insert_scope(connection: AsyncConnection, scope: Scope) -> None:
    """Store a new scope."""
    await connection.execute(insert(scopes), msgspec.structs.asdict(scope))


async def lock_scope(connection: AsyncConnection, tenant_id: str, resource_id: str, scope_id: str) -> Scope | None:
    """Return a scope of this resource, locked against changes until the transaction ends; None if there is none."""
    values = {"tenant": tenant_id, "resource": resource_id, "scope": scope_id}
    row = (await connection.execute(_LOCK_SCOPE, values)).one_or_none()
    return None if row is None else Scope(*row)


async def update_scope(connection: AsyncConnection, scope: Scope) -> None:
    """Store a changed scope."""
    values = msgspec.structs.asdict(scope)
    by_id = {"tenant": values.pop("tenant_id"), "resource": values.pop("resource_id"), "scope": values.pop("id")}
    await connection.execute(_UPDATE_SCOPE.values(values), by_id)


async def delete_scope(connection: AsyncConnection, tenant_id: str, resource_id: str, scope_id: str) -> bool:
    """Delete a scope of this resource; return whether it existed."""
    values = {"tenant": tenant_id, "resource": resource_id, "scope": scope_id}
    return bool((await connection.execute(_DELETE_SCOPE, values)).rowcount)


async def list_scopes(
    connection: AsyncConnection, tenant_id: str, resource_id: str, page: Page
) -> tuple[list[Scope], int]:
    """Return a page of a resource's scopes, by name, and their total."""
    values = {"tenant": tenant_id, "resource": resource_id}
    rows, total = await _LIST_SCOPES.fetch(connection, values, page)
    return [Scope(*row) for row in rows], total
