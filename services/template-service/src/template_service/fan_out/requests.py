"""Asking for a fan-out: within the transaction of a change, take note of whose permissions it may have touched.

A change answers at once, however many members it reaches. Whom it reaches is looked at behind the request
(``fan_out.worker``), which compares what holds then with what was last published.
"""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ARRAY, Text, bindparam, text

from identity_common.outbox.changes import Transaction
from stead.event_types import PermissionCause

FAN_OUT_CHANNEL: Final = "fan_out"
"""PostgreSQL notifies whoever listens here when there is something to do."""

_REQUEST_ROLES: Final = text(
    """
    WITH requested AS (
        INSERT INTO fan_outs (tenant_id, cause, role_id) SELECT :tenant_id, :cause, unnest(:role_ids)
    )
    SELECT pg_notify(:channel, '')
    """
).bindparams(
    *(bindparam(name, type_=Text) for name in ("tenant_id", "cause", "channel")),
    bindparam("role_ids", type_=ARRAY(Text)),
)
_REQUEST_MEMBERS: Final = text(
    """
    WITH requested AS (
        INSERT INTO fan_outs (tenant_id, cause, organization_id, member_ids)
        SELECT :tenant_id, :cause, organization_id, array_agg(member_id ORDER BY member_id COLLATE "C")
        FROM unnest(:organization_ids, :member_ids) AS asked (organization_id, member_id) GROUP BY organization_id
    )
    SELECT pg_notify(:channel, '')
    """
).bindparams(
    *(bindparam(name, type_=Text) for name in ("tenant_id", "cause", "channel")),
    *(bindparam(name, type_=ARRAY(Text)) for name in ("organization_ids", "member_ids")),
)
_REQUEST: Final = text(
    """
    WITH requested AS (
        INSERT INTO fan_outs (tenant_id, cause, role_id, organization_id, member_ids)
        VALUES (:tenant_id, :cause, :role_id, :organization_id, :member_ids)
    )
    SELECT pg_notify(:channel, '')
    """
).bindparams(
    *(bindparam(name, type_=Text) for name in ("tenant_id", "cause", "role_id", "organization_id", "channel")),
    bindparam("member_ids", type_=ARRAY(Text)),
)


async def request_role_fan_out(transaction: Transaction, tenant_id: str, role_id: str, cause: PermissionCause) -> None:
    """Have everybody looked at who holds a role; of a role that is gone the assignments are cleared away too."""
    await _request(transaction, tenant_id, cause, role_id=role_id)


async def request_role_fan_outs(
    transaction: Transaction, tenant_id: str, role_ids: Collection[str], cause: PermissionCause
) -> None:
    """The same for several roles: a row each, one statement."""
    if role_ids:
        values = {"tenant_id": tenant_id, "cause": cause, "role_ids": sorted(role_ids), "channel": FAN_OUT_CHANNEL}
        await transaction.connection.execute(_REQUEST_ROLES, values)


async def request_organization_fan_out(
    transaction: Transaction, tenant_id: str, organization_id: str, cause: PermissionCause
) -> None:
    """Have every member of an organization looked at; of one that is gone the members are cleared away too."""
    await _request(transaction, tenant_id, cause, organization_id=organization_id)


async def request_member_fan_out(
    transaction: Transaction,
    tenant_id: str,
    organization_id: str,
    member_ids: Collection[str],
    cause: PermissionCause,
) -> None:
    """Have these members looked at, those who have just been removed included."""
    if member_ids:
        await _request(transaction, tenant_id, cause, organization_id=organization_id, member_ids=sorted(member_ids))


async def request_members_fan_out(
    transaction: Transaction, tenant_id: str, members: Sequence[tuple[str, str]], cause: PermissionCause
) -> None:
    """The same for members of several organizations, each given as organization and member: one statement."""
    if members:
        values = {
            "tenant_id": tenant_id,
            "cause": cause,
            "organization_ids": [organization_id for organization_id, _ in members],
            "member_ids": [member_id for _, member_id in members],
            "channel": FAN_OUT_CHANNEL,
        }
        await transaction.connection.execute(_REQUEST_MEMBERS, values)


async def _request(
    transaction: Transaction,
    tenant_id: str,
    cause: PermissionCause,
    *,
    role_id: str | None = None,
    organization_id: str | None = None,
    member_ids: list[str] | None = None,
) -> None:
    values = {
        "tenant_id": tenant_id,
        "cause": cause,
        "role_id": role_id,
        "organization_id": organization_id,
        "member_ids": member_ids,
        "channel": FAN_OUT_CHANNEL,
    }
    await transaction.connection.execute(_REQUEST, values)
