"""What organization roles grant, in PostgreSQL: two statements, however many roles there are."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.wire.organization_grants import NamedPermission

_VALUES: Final = (
    bindparam("tenant", type_=Text),
    bindparam("roles", type_=ARRAY(Text)),
    bindparam("limit", type_=BigInteger),
)
_PERMISSIONS: Final = text(
    """
    SELECT requested.role_id, permission.id, permission.name
    FROM unnest(:roles) AS requested (role_id), LATERAL (
        SELECT permission_id FROM role_permissions WHERE tenant_id = :tenant AND role_id = requested.role_id OFFSET 0
    ) AS granted, LATERAL (
        SELECT id, name, sort_key FROM permissions WHERE tenant_id = :tenant AND id = granted.permission_id OFFSET 0
    ) AS permission
    ORDER BY permission.sort_key, permission.name, permission.id LIMIT :limit
    """
).bindparams(*_VALUES)
_SCOPES: Final = text(
    """
    SELECT requested.role_id, granted.scope_id
    FROM unnest(:roles) AS requested (role_id), LATERAL (
        SELECT scope_id FROM role_scopes WHERE tenant_id = :tenant AND role_id = requested.role_id OFFSET 0
    ) AS granted
    ORDER BY granted.scope_id LIMIT :limit
    """
).bindparams(*_VALUES)


async def granted_permissions(
    connection: AsyncConnection, tenant_id: str, role_ids: Collection[str], *, limit: int
) -> list[tuple[str, NamedPermission]]:
    """Return pairs of a role's id and a permission that it grants, by the name of the permission; ``limit`` at most."""
    rows = await connection.execute(_PERMISSIONS, {"tenant": tenant_id, "roles": list(role_ids), "limit": limit})
    return [(role_id, NamedPermission(permission_id, name)) for role_id, permission_id, name in rows]


async def granted_scope_ids(
    connection: AsyncConnection, tenant_id: str, role_ids: Collection[str], *, limit: int
) -> list[tuple[str, str]]:
    """Return pairs of a role's id and the id of an API scope that it grants, sorted; ``limit`` at most."""
    rows = await connection.execute(_SCOPES, {"tenant": tenant_id, "roles": list(role_ids), "limit": limit})
    return [(role_id, scope_id) for role_id, scope_id in rows]
