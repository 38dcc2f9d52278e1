"""Holders of changed roles in PostgreSQL, in batches.

A batch reads no more than its rows of each role, however many holders follow.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

# LIMIT in each subquery makes the planner look up rows by their keys, whatever its statistics say.
_HOLDERS: Final = text(
    """
    WITH holders AS MATERIALIZED (
        SELECT held.organization_id, held.member_id
        FROM unnest(:roles) AS changed (role_id) CROSS JOIN LATERAL (
            SELECT organization_id, member_id FROM member_roles
            WHERE tenant_id = :tenant AND role_id = changed.role_id
                AND (organization_id, member_id) > (:after_organization, :after_member)
            ORDER BY organization_id, member_id LIMIT :limit
        ) AS held
        GROUP BY held.organization_id, held.member_id ORDER BY held.organization_id, held.member_id LIMIT :limit
    )
    SELECT holders.organization_id, holders.member_id, organization.name AS organization, member.member_type,
        CASE member.member_type
            WHEN 'user' THEN (
                SELECT state FROM known_users WHERE tenant_id = :tenant AND id = holders.member_id LIMIT 1)
            WHEN 'application' THEN (
                SELECT state FROM known_applications WHERE tenant_id = :tenant AND id = holders.member_id LIMIT 1)
        END AS state,
        ARRAY(
            SELECT role_id FROM member_roles AS held WHERE held.tenant_id = :tenant
                AND held.organization_id = holders.organization_id AND held.member_id = holders.member_id
            ORDER BY role_id
        ) AS role_ids
    FROM holders
    LEFT JOIN LATERAL (
        SELECT name FROM organizations WHERE tenant_id = :tenant AND id = holders.organization_id LIMIT 1
    ) AS organization ON true
    LEFT JOIN LATERAL (
        SELECT member_type FROM members WHERE tenant_id = :tenant
            AND organization_id = holders.organization_id AND member_id = holders.member_id LIMIT 1
    ) AS member ON true
    ORDER BY holders.organization_id, holders.member_id
    """
).bindparams(
    bindparam("tenant", type_=Text),
    bindparam("roles", type_=ARRAY(Text)),
    bindparam("after_organization", type_=Text),
    bindparam("after_member", type_=Text),
    bindparam("limit", type_=BigInteger),
)


class Position(NamedTuple):
    """The last holder of a batch; empty before the first one."""

    organization_id: str = ""
    member_id: str = ""


async def holders(
    connection: AsyncConnection, tenant_id: str, role_ids: Sequence[str], *, after: Position, limit: int
) -> Sequence[Any]:
    """Return the next holders of at least one of these roles, with all their roles and their state as JSON.

    The organization and the type are None for what was deleted and is yet to be removed.
    """
    values = {
        "tenant": tenant_id,
        "roles": list(role_ids),
        "after_organization": after.organization_id,
        "after_member": after.member_id,
        "limit": limit,
    }
    return (await connection.execute(_HOLDERS, values)).all()
