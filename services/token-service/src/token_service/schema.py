"""The tables of token-service, without ``signing_key``, which only ``token_service.tokens.keys`` reads and writes."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from identity_common.stores.tables import Key, tenant_id

metadata = MetaData()

consents = Table(
    "consents",
    metadata,
    tenant_id(),
    Column("user_id", Key, primary_key=True),
    Column("application_id", Key, primary_key=True),
    Column("kind", Key, primary_key=True),
    Column("resource", Key, primary_key=True),
    Column("name", Key, primary_key=True),
    Column("consented_at", BigInteger, nullable=False),
    Column("implicit", Boolean, nullable=False),
)

authorizations = Table(
    "authorizations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("user_id", Key, nullable=False),
    Column("application_id", Key, nullable=False),
    Column("session_id", Key),
    Column("auth_time", BigInteger, nullable=False),
    Column("consented", Text, nullable=False),
    Column("begun_at", BigInteger, nullable=False),
    Column("redeemed_at", BigInteger),
    Column("tokens_expire_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("first_party", Boolean, nullable=False),
    Column("factors", Text),
    Column("judged_valid_after", BigInteger),
    Column("connector_id", Key),
    Column("provider_session_id", Text),
    Index("authorizations_by_user", "tenant_id", "user_id", "application_id"),
    Index("authorizations_by_session", "tenant_id", "session_id"),
    Index("authorizations_by_expiry", "tenant_id", "tokens_expire_at"),
    Index(
        "authorizations_by_connector",
        *("tenant_id", "connector_id", "auth_time"),
        postgresql_where=text("connector_id IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "authorizations_by_provider_session",
        *("tenant_id", "connector_id", "provider_session_id"),
        postgresql_where=text("provider_session_id IS NOT NULL AND ended_at IS NULL"),
    ),
)

refresh_tokens = Table(
    "refresh_tokens",
    metadata,
    tenant_id(),
    Column("sha256", Key, primary_key=True),
    Column("authorization_id", Key, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("issued_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("rotated_at", BigInteger),
    ForeignKeyConstraint(
        ["tenant_id", "authorization_id"],
        ["authorizations.tenant_id", "authorizations.id"],
        name="refresh_tokens_authorization_fkey",
        ondelete="CASCADE",
    ),
    Index("refresh_tokens_by_authorization", "tenant_id", "authorization_id", "generation"),
    Index("refresh_tokens_by_expiry", "tenant_id", "expires_at"),
)

revocations = Table(
    "revocations",
    metadata,
    tenant_id(),
    Column("id", Key, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("begun_until", BigInteger),
    Index("revocations_by_number", "tenant_id", "number"),
    Index("revocations_by_expiry", "tenant_id", "expires_at"),
)

revocation_counts = Table(
    "revocation_counts",
    metadata,
    tenant_id(),
    Column("number", BigInteger, nullable=False),
    Column("server", Text),
)

read_positions = Table(
    "read_positions",
    metadata,
    tenant_id(),
    Column("reader", Key, primary_key=True),
    Column("stream", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
)
"""How far a reader has read a stream of the bus."""

not_valid_feed = Table(
    "not_valid_feed",
    metadata,
    tenant_id(),
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("revocations_read", BigInteger, nullable=False),
    Column("stream", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("longest_lifetime_s", BigInteger, nullable=False),
    # The previous release's; the next one drops them.
    Column("events_stream", Text, nullable=False, server_default=""),
    Column("events_position", BigInteger, nullable=False, server_default="0"),
    Column("server", Text),
    Column("template_stream", Text, nullable=False, server_default=""),
    Column("template_position", BigInteger, nullable=False, server_default="0"),
)

not_valid_entries = Table(
    "not_valid_entries",
    metadata,
    tenant_id(),
    Column("entry", LargeBinary, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    Column("forget_at", BigInteger, nullable=False),
    Index("not_valid_entries_by_sequence", "tenant_id", "sequence"),
    Index("not_valid_entries_by_age", "tenant_id", "forget_at"),
)

not_valid_keys = Table(
    "not_valid_keys",
    metadata,
    tenant_id(),
    Column("kid", Key, primary_key=True),
    Column("private_key", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)
