"""Ends of impersonations."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE impersonation_ends (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            slot integer NOT NULL,
            begun_until bigint,
            expires_at bigint NOT NULL,
            CONSTRAINT impersonation_ends_pkey PRIMARY KEY (tenant_id, id)
        )"""
    )
    op.execute("CREATE INDEX impersonation_ends_by_slot ON impersonation_ends (tenant_id, slot)")


def downgrade() -> None:
    op.execute("DROP TABLE impersonation_ends")
