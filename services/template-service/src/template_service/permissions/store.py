"""Organization permissions in PostgreSQL."""

from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.paging import Page
from identity_common.stores.database import PagedList
from identity_common.stores.lookups import Lookups, key_lookup
from template_service.role_contents.store import PERMISSION_COLUMNS, SEARCHED_OF_PERMISSION, OrganizationPermission
from template_service.schema import permissions

_BY_ID: Final = (permissions.c.tenant_id == bindparam("tenant"), permissions.c.id == bindparam("permission"))
_FIND: Final = select(*PERMISSION_COLUMNS).where(*_BY_ID)
_LOOK_UP: Final = key_lookup(_FIND)
_LOCK: Final = _FIND.with_for_update()
_UPDATE: Final = update(permissions).where(*_BY_ID)
_DELETE: Final = delete(permissions).where(*_BY_ID)
_LIST: Final = PagedList(
    select(*PERMISSION_COLUMNS)
    .where(permissions.c.tenant_id == bindparam("tenant"))
    .order_by(permissions.c.sort_key, permissions.c.name, permissions.c.id),
    searched=SEARCHED_OF_PERMISSION,
)


async def insert_permission(connection: AsyncConnection, permission: OrganizationPermission) -> None:
    """Store a new permission."""
    await connection.execute(insert(permissions), msgspec.structs.asdict(permission))


async def find_permission(lookups: Lookups, tenant_id: str, permission_id: str) -> OrganizationPermission | None:
    """Return a permission, or none."""
    rows = await lookups.fetch(_LOOK_UP, tenant_id, permission_id)
    return OrganizationPermission(*rows[0]) if rows else None


async def lock_permission(
    connection: AsyncConnection, tenant_id: str, permission_id: str
) -> OrganizationPermission | None:
    """Return a permission, locked against changes and new grants until the transaction ends; or none."""
    values = {"tenant": tenant_id, "permission": permission_id}
    row = (await connection.execute(_LOCK, values)).one_or_none()
    return None if row is None else OrganizationPermission(*row)


async def update_permission(connection: AsyncConnection, permission: OrganizationPermission) -> None:
    """Store a changed permission."""
    values = msgspec.structs.asdict(permission)
    by_id = {"tenant": values.pop("tenant_id"), "permission": values.pop("id")}
    await connection.execute(_UPDATE.values(values), by_id)


async def delete_permission(connection: AsyncConnection, tenant_id: str, permission_id: str) -> None:
    """Delete a permission and its grants."""
    await connection.execute(_DELETE, {"tenant": tenant_id, "permission": permission_id})


async def list_permissions(
    connection: AsyncConnection, tenant_id: str, page: Page
) -> tuple[list[OrganizationPermission], int]:
    """Return a page of the permissions, by name, and their total."""
    rows, total = await _LIST.fetch(connection, {"tenant": tenant_id}, page)
    return [OrganizationPermission(*row) for row in rows], total
