"""The audit outbox: entries of the audit trail that are not published yet, and their counter."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("CREATE TABLE audit_count (tenant_id text PRIMARY KEY, sequence bigint NOT NULL)")
    op.execute(
        """CREATE TABLE audit_outbox (
            tenant_id text NOT NULL,
            sequence bigint NOT NULL,
            revision bigint NOT NULL,
            entry text NOT NULL,
            PRIMARY KEY (tenant_id, sequence)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE audit_outbox")
    op.execute("DROP TABLE audit_count")
