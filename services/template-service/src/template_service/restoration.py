"""Repairs the state after the database lost changes: see docs/operations/backup-and-restore.md."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ARRAY, Text, bindparam, text

from identity_common.outbox.changes import Transaction
from identity_common.outbox.mail import drop_queued
from identity_common.outbox.restoration import Published
from template_service.fan_out.events import NOTHING

_PERMISSIONS: Final = "member-permissions"
_KEPT: Final = frozenset({_PERMISSIONS, "applied"})
"""Kinds of which nothing is deleted from the bus: their versions and revisions only increase."""

_RAISE_VERSIONS: Final = tuple(
    text(f"UPDATE {table} SET version = :version WHERE tenant_id = :tenant")  # noqa: S608 - constants
    for table in ("permissions", "roles", "published_permissions")
)
_STORE_EMPTY: Final = text(
    """
    INSERT INTO published_permissions (tenant_id, organization_id, member_id, member_type, version, permissions)
    SELECT :tenant, organization, member, type, :version, :nothing
    FROM unnest(:organizations, :members, :types) AS unknown (organization, member, type)
    """
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("organizations", "members", "types")))
# Whether an invitation was accepted after the lost changes is not known: its link must not work again.
_END_LINKS: Final = text("UPDATE organization_invitations SET link_sha256 = NULL WHERE tenant_id = :tenant")
# management-service publishes its whole state after its own restoration; here it is read from the beginning.
_READ_AGAIN: Final = text(
    """
    UPDATE projection_position SET stream = '', sequence = 0, revision = -1, complete = false, read_revision = -1
    WHERE tenant_id = :tenant
    """
)


async def mend(transaction: Transaction, unknown: Sequence[Published], *, revision: int, tenant_id: str) -> None:
    """Raise all versions, end links and queued mail; delete from the bus what the database does not have."""
    # No version exceeds the revision: whatever increments a version also records an event.
    for statement in _RAISE_VERSIONS:
        await transaction.connection.execute(statement, {"tenant": tenant_id, "version": revision})
    members = [published for published in unknown if published.kind == _PERMISSIONS]
    await _store_empty(transaction, members, version=revision, tenant_id=tenant_id)
    await transaction.connection.execute(_END_LINKS, {"tenant": tenant_id})
    await drop_queued(transaction.connection, tenant_id)
    await transaction.connection.execute(_READ_AGAIN, {"tenant": tenant_id})
    transaction.changes += [published.deletion for published in unknown if published.kind not in _KEPT]


async def _store_empty(transaction: Transaction, members: list[Published], *, version: int, tenant_id: str) -> None:
    """Store empty permissions for members that the database does not know; the relay then publishes them."""
    values = {
        "tenant": tenant_id,
        "version": version,
        "nothing": NOTHING,
        "organizations": [member.state["organizationId"] for member in members],
        "members": [member.state["memberId"] for member in members],
        "types": [member.state["memberType"] for member in members],
    }
    await transaction.connection.execute(_STORE_EMPTY, values)
