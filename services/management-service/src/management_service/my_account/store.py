"""Names of users and applications, for people who may read neither."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ARRAY, Text, any_, bindparam, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from management_service.schema import applications, users

_TENANT: Final = bindparam("tenant", type_=Text)
_IDS: Final = bindparam("ids", type_=ARRAY(Text))
# Not the e-mail address: who acted is told by a name, not how to reach them.
_NAMES: Final = union_all(
    select(users.c.id, func.coalesce(func.nullif(users.c.name, ""), users.c.username).label("name")).where(
        users.c.tenant_id == _TENANT, users.c.id == any_(_IDS)
    ),
    select(applications.c.id, applications.c.name).where(
        applications.c.tenant_id == _TENANT, applications.c.id == any_(_IDS)
    ),
)


async def find_names(connection: AsyncConnection, tenant_id: str, ids: Collection[str]) -> dict[str, str]:
    """Return the names of today of users and applications, by id; a deleted one has none."""
    rows = await connection.execute(_NAMES, {"tenant": tenant_id, "ids": sorted(ids)})
    return {row.id: row.name for row in rows if row.name is not None}
