"""Requests for a fan-out: the transaction of a change records whose permissions it may have affected.

The response to a change does not wait for the fan-out. The worker (``fan_out.worker``) later compares the permissions
of each affected member with those last published.
"""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ARRAY, Text, bindparam, text

from identity_common.outbox.changes import Transaction
from stead.event_types import PermissionCause

FAN_OUT_CHANNEL: Final = "fan_out"
"""The PostgreSQL channel that wakes the worker."""

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
        FROM unnest(:organization_ids, :member_ids) AS requested (organization_id, member_id) GROUP BY organization_id
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
    """Schedule recomputation for every holder of a role; the assignments of a deleted role are deleted with it."""
    await _request(transaction, tenant_id, cause, role_id=role_id)


async def request_role_fan_outs(
    transaction: Transaction, tenant_id: str, role_ids: Collection[str], cause: PermissionCause
) -> None:
    """Schedule recomputation for every holder of any of these roles, by one statement."""
    if role_ids:
        values = {"tenant_id": tenant_id, "cause": cause, "role_ids": sorted(role_ids), "channel": FAN_OUT_CHANNEL}
        await transaction.connection.execute(_REQUEST_ROLES, values)


async def request_organization_fan_out(
    transaction: Transaction, tenant_id: str, organization_id: str, cause: PermissionCause
) -> None:
    """Schedule recomputation for every member of an organization; those of a deleted one are deleted with it."""
    await _request(transaction, tenant_id, cause, organization_id=organization_id)


async def request_member_fan_out(
    transaction: Transaction,
    tenant_id: str,
    organization_id: str,
    member_ids: Collection[str],
    cause: PermissionCause,
) -> None:
    """Schedule recomputation for these members; they may just have been removed."""
    if member_ids:
        await _request(transaction, tenant_id, cause, organization_id=organization_id, member_ids=sorted(member_ids))


async def request_members_fan_out(
    transaction: Transaction, tenant_id: str, members: Sequence[tuple[str, str]], cause: PermissionCause
) -> None:
    """Schedule recomputation for members of several organizations, by one statement.

    Args:
        transaction: The transaction of the change.
        tenant_id: The tenant.
        members: Ids of the organization and the member.
        cause: Why their permissions may have changed.
    """
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
