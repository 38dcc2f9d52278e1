"""Revocations and how many there have been."""

from sqlalchemy import BigInteger, Column, Index, Table

from identity_common.stores.tables import Key, tenant_id
from token_service.schema import metadata

revocations = Table(
    "revocations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("revocations_by_number", "tenant_id", "number"),
    Index("revocations_by_expiry", "tenant_id", "expires_at"),
)

revocation_counts = Table(
    "revocation_counts",
    metadata,
    tenant_id(),
    Column("number", BigInteger, nullable=False),
)
