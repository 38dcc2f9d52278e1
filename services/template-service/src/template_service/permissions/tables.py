"""Organization permissions."""

from sqlalchemy import BigInteger, Column, Table, Text, UniqueConstraint

from identity_common.stores.tables import Key, tenant_id
from template_service.schema import metadata

permissions = Table(
    "permissions",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("name", Key, nullable=False),
    Column("description", Text),
    # Grows with every change of the row: part of the ETag of a member's permissions.
    Column("version", BigInteger, nullable=False),
    UniqueConstraint("tenant_id", "name", name="permissions_name_unique"),
)
