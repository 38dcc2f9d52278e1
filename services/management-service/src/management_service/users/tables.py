"""Users."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text, UniqueConstraint

from identity_common.stores.tables import Key, tenant_id
from management_service.schema import metadata

users = Table(
    "users",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("username", Text),
    Column("username_key", Key),
    Column("primary_email", Text),
    Column("primary_email_key", Key),
    Column("primary_phone", Text),
    Column("primary_phone_key", Key),
    Column("name", Key),
    Column("avatar", Text),
    Column("is_email_verified", Boolean, nullable=False),
    Column("password_hash", Text),
    Column("is_suspended", Boolean, nullable=False),
    Column("tokens_valid_after", BigInteger, nullable=False),
    Column("custom_data", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("search_key", Key, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "username_key", name="users_username_unique"),
    UniqueConstraint("tenant_id", "primary_email_key", name="users_primary_email_unique"),
    UniqueConstraint("tenant_id", "primary_phone_key", name="users_primary_phone_unique"),
    Index("users_by_name", "tenant_id", "name", "id"),
)
