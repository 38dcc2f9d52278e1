"""Applications and their secrets."""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    Text,
)

from identity_common.stores.tables import Key, tenant_id
from management_service.schema import metadata

applications = Table(
    "applications",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("type", Text, nullable=False),
    Column("is_third_party", Boolean, nullable=False),
    Column("redirect_uris", ARRAY(Text), nullable=False),
    Column("post_logout_redirect_uris", ARRAY(Text), nullable=False),
    Column("allow_token_exchange", Boolean, nullable=False),
    Column("cors_allowed_origins", ARRAY(Text), nullable=False),
    Column("id_token_ttl_s", Integer, nullable=False),
    Column("refresh_token_ttl_days", Integer, nullable=False),
    Column("rotate_refresh_token", Boolean, nullable=False),
    Column("always_issue_refresh_token", Boolean, nullable=False),
    Column("custom_data", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    CheckConstraint("NOT (is_third_party AND allow_token_exchange)", name="applications_third_party_exchange"),
    Index("applications_by_name", "tenant_id", "name", "id"),
)

application_secrets = Table(
    "application_secrets",
    metadata,
    tenant_id(),
    Column("application_id", Key, primary_key=True),
    Column("name", Key, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    ForeignKeyConstraint(
        ["tenant_id", "application_id"],
        ["applications.tenant_id", "applications.id"],
        name="application_secrets_application_fkey",
        ondelete="CASCADE",
    ),
)
