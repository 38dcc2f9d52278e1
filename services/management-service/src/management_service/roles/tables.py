"""API roles, the scopes they grant, and who holds them."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, UniqueConstraint

from identity_common.stores.tables import Key, reference, tenant_id
from management_service.schema import metadata

roles = Table(
    "roles",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "name", name="roles_name_unique"),
)
Index("roles_default", roles.c.tenant_id, roles.c.id, postgresql_where=roles.c.is_default)


role_scopes = Table(
    "role_scopes",
    metadata,
    tenant_id(),
    Column("role_id", Key, primary_key=True),
    Column("scope_id", Key, primary_key=True),
    reference("role_scopes", "role_id", "roles"),
    reference("role_scopes", "scope_id", "scopes"),
    Index("role_scopes_by_scope", "tenant_id", "scope_id", "role_id"),
)

user_roles = Table(
    "user_roles",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    reference("user_roles", "user_id", "users"),
    reference("user_roles", "role_id", "roles"),
    Index("user_roles_by_role", "tenant_id", "role_id", "user_id"),
)

application_roles = Table(
    "application_roles",
    metadata,
    tenant_id(),
    Column("application_id", Key, primary_key=True),
    Column("role_id", Key, primary_key=True),
    reference("application_roles", "application_id", "applications"),
    reference("application_roles", "role_id", "roles"),
    Index("application_roles_by_role", "tenant_id", "role_id", "application_id"),
)
