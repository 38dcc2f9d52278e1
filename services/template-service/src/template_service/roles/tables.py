"""Organization roles and what they grant."""

from sqlalchemy import BigInteger, Column, Index, Table, Text, UniqueConstraint

from identity_common.stores.tables import Key, reference, tenant_id
from template_service.schema import metadata

roles = Table(
    "roles",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("type", Text, nullable=False),
    # Grows with every change of the row or of what the role grants: part of the ETag of a member's permissions.
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "name", name="roles_name_unique"),
)

role_permissions = Table(
    "role_permissions",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("permission_id", Key, primary_key=True),
    reference("role_permissions", "role_id", "roles"),
    reference("role_permissions", "permission_id", "permissions"),
    Index("role_permissions_by_permission", "tenant_id", "permission_id", "role_id"),
)

role_scopes = Table(
    "role_scopes",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("scope_id", Key, primary_key=True),
    reference("role_scopes", "role_id", "roles"),
    reference("role_scopes", "scope_id", "known_scopes"),
    Index("role_scopes_by_scope", "tenant_id", "scope_id", "role_id"),
)
