"""The events and versions of organization roles."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ARRAY, Text, bindparam, text

from identity_common.outbox.changes import Transaction
from stead.event_types import OrganizationRoleState

_CONTENTS: Final = text(
    """
    SELECT id, name, type,
        ARRAY(SELECT permission_id FROM role_permissions AS held
            WHERE held.tenant_id = roles.tenant_id AND held.role_id = roles.id ORDER BY 1) AS permission_ids,
        ARRAY(SELECT scope_id FROM role_scopes AS held
            WHERE held.tenant_id = roles.tenant_id AND held.role_id = roles.id ORDER BY 1) AS scope_ids
    FROM roles WHERE tenant_id = :tenant AND id = ANY(:ids) ORDER BY id
    """
).bindparams(bindparam("tenant", type_=Text), bindparam("ids", type_=ARRAY(Text)))
_TOUCH: Final = text("UPDATE roles SET version = version + 1 WHERE tenant_id = :tenant AND id = ANY(:ids)").bindparams(
    bindparam("tenant", type_=Text), bindparam("ids", type_=ARRAY(Text))
)


async def record_roles(
    transaction: Transaction, tenant_id: str, role_ids: Collection[str], verb: str = "updated"
) -> list[OrganizationRoleState]:
    """Record an event with the present state of each role, locked by the caller; return the states."""
    rows = await transaction.connection.execute(_CONTENTS, {"tenant": tenant_id, "ids": list(role_ids)})
    states = [
        OrganizationRoleState(
            id=row.id,
            name=row.name,
            type=row.type,
            permission_ids=tuple(row.permission_ids),
            scope_ids=tuple(row.scope_ids),
        )
        for row in rows
    ]
    for state in states:
        transaction.record("role", (state.id,), verb, state)
    return states


async def touch_roles(transaction: Transaction, tenant_id: str, role_ids: Collection[str]) -> None:
    """Increment the versions of roles that changed, or whose grants did."""
    await transaction.connection.execute(_TOUCH, {"tenant": tenant_id, "ids": list(role_ids)})
