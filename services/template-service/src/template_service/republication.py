"""Republication: records every aggregate of this service again, batch by batch.

Each step locks the rows that it reads, in the order of their ids: an event carries the state as of its revision.
Members of a deleted organization and assignments of a deleted role are recorded as they are; readers ignore them, and
the fan-out deletes them.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ARRAY, Row, Table, Text, bindparam, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.outbox.changes import Transaction
from identity_common.outbox.republication import BATCH, Step
from identity_common.wire.events import AppliedState
from stead.event_types import MemberState, OrganizationPermissionState, OrganizationState
from template_service.fan_out.events import permissions_state, unchanged
from template_service.known.store import lock_position
from template_service.role_contents.events import record_roles
from template_service.schema import members, organizations, permissions, published_permissions, roles

_TENANT: Final = bindparam("tenant", type_=Text)
_ROLES_OF: Final = text(
    """
    SELECT organization_id, member_id, array_agg(role_id ORDER BY role_id) AS role_ids FROM member_roles
    WHERE tenant_id = :tenant AND (organization_id, member_id) IN (SELECT * FROM unnest(:organizations, :members))
    GROUP BY organization_id, member_id
    """
).bindparams(_TENANT, bindparam("organizations", type_=ARRAY(Text)), bindparam("members", type_=ARRAY(Text)))


class WholeState:
    """Records every aggregate of a tenant.

    Attributes:
        steps: One for each kind of aggregate.
    """

    def __init__(self, tenant_id: str) -> None:
        self._tenant_id = tenant_id
        self.steps: Sequence[Step] = (
            self._record_permissions,
            self._record_roles,
            self._record_organizations,
            self._record_members,
            self._record_published_permissions,
            self._record_applied,
        )

    async def _record_permissions(self, transaction: Transaction, after: str) -> str | None:
        rows = await _lock_batch(transaction.connection, permissions, self._tenant_id, after)
        for row in rows:
            state = OrganizationPermissionState(id=row.id, name=row.name, description=row.description)
            transaction.record("permission", (row.id,), "updated", state)
        return rows[-1].id if rows else None

    async def _record_roles(self, transaction: Transaction, after: str) -> str | None:
        rows = await _lock_batch(transaction.connection, roles, self._tenant_id, after)
        await record_roles(transaction, self._tenant_id, [row.id for row in rows])
        return rows[-1].id if rows else None

    async def _record_organizations(self, transaction: Transaction, after: str) -> str | None:
        rows = await _lock_batch(transaction.connection, organizations, self._tenant_id, after)
        for row in rows:
            state = OrganizationState(id=row.id, name=row.name, is_mfa_required=row.is_mfa_required)
            transaction.record("organization", (row.id,), "updated", state)
        return rows[-1].id if rows else None

    async def _record_members(self, transaction: Transaction, after: str) -> str | None:
        rows = await _lock_members(transaction.connection, members, self._tenant_id, after)
        values = {
            "tenant": self._tenant_id,
            "organizations": [row.organization_id for row in rows],
            "members": [row.member_id for row in rows],
        }
        assigned = await transaction.connection.execute(_ROLES_OF, values)
        role_ids = {(organization_id, member_id): held for organization_id, member_id, held in assigned}
        for row in rows:
            key = (row.organization_id, row.member_id)
            state = MemberState(
                organization_id=row.organization_id,
                member_id=row.member_id,
                member_type=row.member_type,
                joined_at=row.joined_at,
                rejoined=row.rejoined,
                role_ids=tuple(role_ids.get(key, ())),
            )
            transaction.record("member", key, "updated", state)
        return _last(rows)

    async def _record_published_permissions(self, transaction: Transaction, after: str) -> str | None:
        """Record what was last published, former members included: their versions continue when they rejoin."""
        rows = await _lock_members(transaction.connection, published_permissions, self._tenant_id, after)
        for row in rows:
            key = (row.organization_id, row.member_id)
            state = permissions_state(*key, row.member_type, row.version, "republished", unchanged(row.permissions))
            transaction.record("member-permissions", key, "updated", state)
        return _last(rows)

    async def _record_applied(self, transaction: Transaction, _: str) -> None:
        """Record how far management's sign-ins have been applied; not before the first."""
        stored = await lock_position(transaction.connection, self._tenant_id)
        if stored.applied_revision >= 0:
            state = AppliedState(id="management", revision=stored.applied_revision)
            transaction.record("applied", ("management",), "updated", state)


async def _lock_batch(connection: AsyncConnection, table: Table, tenant_id: str, after: str) -> Sequence[Row[Any]]:
    """Return the next rows after an id, locked against change until the transaction ends."""
    statement = (
        select(table)
        .where(table.c.tenant_id == _TENANT, table.c.id > bindparam("after"))
        .order_by(table.c.id)
        .limit(BATCH)
        .with_for_update(read=True)
    )
    return (await connection.execute(statement, {"tenant": tenant_id, "after": after})).all()


async def _lock_members(connection: AsyncConnection, table: Table, tenant_id: str, after: str) -> Sequence[Row[Any]]:
    """Return the next rows after a member, locked against change until the transaction ends."""
    key = (table.c.organization_id, table.c.member_id)
    statement = (
        select(table)
        .where(table.c.tenant_id == _TENANT, tuple_(*key) > tuple_(bindparam("organization"), bindparam("member")))
        .order_by(*key)
        .limit(BATCH)
        .with_for_update(read=True)
    )
    organization_id, _, member_id = after.partition("/")
    values = {"tenant": tenant_id, "organization": organization_id, "member": member_id}
    return (await connection.execute(statement, values)).all()


def _last(rows: Sequence[Row[Any]]) -> str | None:
    return f"{rows[-1].organization_id}/{rows[-1].member_id}" if rows else None
