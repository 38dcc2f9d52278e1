"""The audit trail: entries in monthly partitions, and how far each log and the stream were ingested."""

from alembic import op

revision = "0007"
down_revision = "0006"

_FILTERS = (
    *("key", "operation", "application_id", "user_id", "written_user_id"),
    *("actor_id", "organization_id", "subject_token_id"),
)


def upgrade() -> None:
    op.execute("CREATE SEQUENCE audit_entry_number")
    op.execute(
        """CREATE TABLE audit_entries (
            tenant_id text COLLATE "C" NOT NULL,
            occurred_at bigint NOT NULL,
            number bigint DEFAULT nextval('audit_entry_number') NOT NULL,
            id text COLLATE "C" NOT NULL,
            log text COLLATE "C" NOT NULL,
            epoch text COLLATE "C" NOT NULL,
            sequence bigint,
            key text COLLATE "C" NOT NULL,
            operation text COLLATE "C",
            application_id text COLLATE "C",
            user_id text COLLATE "C",
            written_user_id text COLLATE "C",
            actor_id text COLLATE "C",
            organization_id text COLLATE "C",
            subject_token_id text COLLATE "C",
            entry text NOT NULL,
            CONSTRAINT audit_entries_pkey PRIMARY KEY (tenant_id, occurred_at, number),
            CONSTRAINT audit_entries_numbered_once UNIQUE (tenant_id, log, epoch, sequence, occurred_at)
        ) PARTITION BY RANGE (occurred_at)"""
    )
    op.execute("CREATE INDEX audit_entries_by_id ON audit_entries (tenant_id, id)")
    for column in _FILTERS:
        op.execute(
            f"CREATE INDEX audit_entries_by_{column} ON audit_entries (tenant_id, {column}, occurred_at, number)"
        )
    op.execute(
        """CREATE TABLE audit_numberings (
            tenant_id text COLLATE "C" NOT NULL,
            log text COLLATE "C" NOT NULL,
            epoch text COLLATE "C" NOT NULL,
            number bigint DEFAULT nextval('audit_entry_number') NOT NULL,
            last_sequence bigint NOT NULL,
            CONSTRAINT audit_numberings_pkey PRIMARY KEY (tenant_id, log, epoch)
        )"""
    )
    op.execute(
        """CREATE TABLE audit_positions (
            tenant_id text COLLATE "C" NOT NULL,
            stream_created text NOT NULL,
            position bigint NOT NULL,
            CONSTRAINT audit_positions_pkey PRIMARY KEY (tenant_id)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE audit_positions")
    op.execute("DROP TABLE audit_numberings")
    op.execute("DROP TABLE audit_entries")
    op.execute("DROP SEQUENCE audit_entry_number")
