"""What was last published of each member, and what still has to be looked at."""

from sqlalchemy import ARRAY, BigInteger, Column, Identity, Table, Text

from identity_common.stores.tables import Key, tenant_id
from template_service.schema import metadata

# A row outlives its member: versions go on where they were when it comes back.
published_permissions = Table(
    "published_permissions",
    metadata,
    tenant_id(),
    Column("organization_id", Key, primary_key=True),
    Column("member_id", Key, primary_key=True),
    Column("member_type", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("permissions", Text, nullable=False),
)

fan_outs = Table(
    "fan_outs",
    metadata,
    tenant_id(),
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("cause", Text, nullable=False),
    Column("role_id", Key),
    Column("organization_id", Key),
    Column("member_ids", ARRAY(Text)),
    # The last member that has been looked at.
    Column("after_organization_id", Key, nullable=False, server_default=""),
    Column("after_member_id", Key, nullable=False, server_default=""),
)
