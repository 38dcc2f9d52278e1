"""Scopes of API resources, by the role that grants them and by id, in PostgreSQL."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ARRAY, Select, Text, any_, bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.effective_permissions.rules import GrantingRoleAnswer, ResourceScope
from management_service.schema import resources, role_scopes, roles, scopes, user_roles

_TENANT: Final = bindparam("tenant", type_=Text)
_SCOPES: Final = select(
    resources.c.id.label("resource_id"),
    resources.c.name.label("resource_name"),
    resources.c.indicator,
    scopes.c.id,
    scopes.c.name,
).join(resources, (resources.c.tenant_id == scopes.c.tenant_id) & (resources.c.id == scopes.c.resource_id))
_ORDER: Final = (
    *(resources.c.sort_key, resources.c.name, resources.c.id),
    *(scopes.c.sort_key, scopes.c.name, scopes.c.id),
)
_OF_USER: Final[Select[Any]] = (
    _SCOPES.add_columns(roles.c.id.label("role_id"), roles.c.name.label("role_name"))
    .join(role_scopes, (role_scopes.c.tenant_id == scopes.c.tenant_id) & (role_scopes.c.scope_id == scopes.c.id))
    .join(roles, (roles.c.tenant_id == role_scopes.c.tenant_id) & (roles.c.id == role_scopes.c.role_id))
    .join(user_roles, (user_roles.c.tenant_id == roles.c.tenant_id) & (user_roles.c.role_id == roles.c.id))
    .where(user_roles.c.tenant_id == _TENANT, user_roles.c.user_id == bindparam("user"))
    .order_by(*_ORDER, roles.c.sort_key, roles.c.name, roles.c.id)
)
_BY_ID: Final[Select[Any]] = _SCOPES.where(
    scopes.c.tenant_id == _TENANT,
    scopes.c.id == any_(bindparam("ids", type_=ARRAY(Text))),
    resources.c.indicator != bindparam("but_of"),
).order_by(*_ORDER)


async def scopes_of_user(
    connection: AsyncConnection, tenant_id: str, user_id: str, *, limit: int
) -> list[tuple[ResourceScope, GrantingRoleAnswer]]:
    """Return each scope that a user's API roles grant, once for each role, by resource, scope and role."""
    rows = await connection.execute(_OF_USER.limit(limit), {"tenant": tenant_id, "user": user_id})
    return [(ResourceScope(*row[:5]), GrantingRoleAnswer(id=row.role_id, name=row.role_name)) for row in rows]


async def scopes_by_id(
    connection: AsyncConnection, tenant_id: str, scope_ids: Collection[str], *, but_of: str
) -> list[ResourceScope]:
    """Return those of these scopes that exist, by resource and scope; without those of the resource ``but_of``."""
    rows = await connection.execute(_BY_ID, {"tenant": tenant_id, "ids": list(scope_ids), "but_of": but_of})
    return [ResourceScope(*row) for row in rows]
