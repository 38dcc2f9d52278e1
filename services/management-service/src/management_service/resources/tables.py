"""API resources and their scopes."""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKeyConstraint, Index, Integer, Table, Text, UniqueConstraint

from identity_common.stores.tables import Key, tenant_id
from management_service.schema import metadata

resources = Table(
    "resources",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("indicator", Text, nullable=False),
    Column("access_token_ttl_s", Integer, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "indicator", name="resources_indicator_unique"),
    Index("resources_by_name", "tenant_id", "name", "id"),
)

scopes = Table(
    "scopes",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("resource_id", Key, nullable=False),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "resource_id", "name", name="scopes_name_unique"),
    ForeignKeyConstraint(
        ["tenant_id", "resource_id"],
        ["resources.tenant_id", "resources.id"],
        name="scopes_resource_fkey",
        ondelete="CASCADE",
    ),
)
