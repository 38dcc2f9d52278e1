"""Organizations."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text

from identity_common.stores.tables import Key, tenant_id
from template_service.schema import metadata

organizations = Table(
    "organizations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    Column("custom_data", Text, nullable=False),
    Column("is_mfa_required", Boolean, nullable=False),
    # Objects as JSON: stored and answered, never looked into.
    Column("color", Text, nullable=False),
    Column("branding", Text, nullable=False),
    Column("custom_css", Text),
    Column("created_at", BigInteger, nullable=False),
)
Index("organizations_by_name", organizations.c.tenant_id, organizations.c.name, organizations.c.id)
