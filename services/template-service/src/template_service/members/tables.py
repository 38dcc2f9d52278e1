"""Who belongs to which organization, with which roles.

Nothing here points to an organization or a role: either may be gone at once, however many members it has. Its members
and assignments count for nothing from then on and are cleared away behind (``fan_out``).
"""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Table, Text

from identity_common.stores.tables import Key, tenant_id
from template_service.schema import metadata

members = Table(
    "members",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("member_type", Text, nullable=False),
    Column("joined_at", BigInteger, nullable=False),
    Index("members_by_member", "tenant_id", "member_id", "organization_id"),
)

member_roles = Table(
    "member_roles",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    ForeignKeyConstraint(
        ["tenant_id", "organization_id", "member_id"],
        ["members.tenant_id", "members.organization_id", "members.member_id"],
        name="member_roles_member_fkey",
        ondelete="CASCADE",
    ),
    Index("member_roles_by_role", "tenant_id", "role_id", "organization_id", "member_id"),
)
