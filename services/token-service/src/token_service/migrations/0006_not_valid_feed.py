"""The not-valid feed: how far it has come, its records, and the keys that sign it."""

from alembic import op

revision = "0006"
down_revision = "0005"

CREATE = (
    """CREATE TABLE not_valid_feed (
        tenant_id text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL,
        sequence bigint NOT NULL,
        revocations_read bigint NOT NULL,
        stream text NOT NULL,
        position bigint NOT NULL,
        longest_lifetime_s bigint NOT NULL,
        CONSTRAINT not_valid_feed_pkey PRIMARY KEY (tenant_id)
    )""",
    """CREATE TABLE not_valid_entries (
        tenant_id text COLLATE "C" NOT NULL,
        entry bytea NOT NULL,
        sequence bigint NOT NULL,
        not_before bigint NOT NULL,
        forget_at bigint NOT NULL,
        CONSTRAINT not_valid_entries_pkey PRIMARY KEY (tenant_id, entry)
    )""",
    "CREATE INDEX not_valid_entries_by_sequence ON not_valid_entries (tenant_id, sequence)",
    "CREATE INDEX not_valid_entries_by_age ON not_valid_entries (tenant_id, forget_at)",
    """CREATE TABLE not_valid_keys (
        tenant_id text COLLATE "C" NOT NULL,
        kid text COLLATE "C" NOT NULL,
        private_key bytea NOT NULL,
        created_at bigint NOT NULL,
        CONSTRAINT not_valid_keys_pkey PRIMARY KEY (tenant_id, kid)
    )""",
)


def upgrade() -> None:
    for statement in CREATE:
        op.execute(statement)


def downgrade() -> None:
    for table in ("not_valid_keys", "not_valid_entries", "not_valid_feed"):
        op.execute(f"DROP TABLE {table}")
