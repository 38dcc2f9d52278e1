"""Removing deleted users and applications from every organization."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import ARRAY, Text, bindparam, text

from identity_common.outbox.changes import Transaction
from stead.event_types import MemberState
from template_service.fan_out.requests import request_members_fan_out

# Locked in the order in which all code locks members.
_REMOVE: Final = text(
    """
    DELETE FROM members WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM members WHERE tenant_id = :tenant AND member_id = ANY(:ids)
        ORDER BY organization_id, member_id FOR UPDATE
    )) RETURNING organization_id, member_id, member_type
    """
).bindparams(bindparam("tenant", type_=Text), bindparam("ids", type_=ARRAY(Text)))


async def remove_everywhere(transaction: Transaction, tenant_id: str, member_ids: Collection[str]) -> None:
    """Remove deleted users or applications from every organization."""
    rows = await transaction.connection.execute(_REMOVE, {"tenant": tenant_id, "ids": list(member_ids)})
    removed = sorted(rows)
    for organization_id, member_id, member_type in removed:
        state = MemberState(organization_id=organization_id, member_id=member_id, member_type=member_type, deleted=True)
        transaction.record("member", (organization_id, member_id), "deleted", state)
    members = [(organization_id, member_id) for organization_id, member_id, _ in removed]
    await request_members_fan_out(transaction, tenant_id, members, "member-removed")
