"""Number of audit entries by hour and key, including the entries that are stored already."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE audit_figures (
            tenant_id text COLLATE "C" NOT NULL,
            hour bigint NOT NULL,
            key text COLLATE "C" NOT NULL,
            entries bigint NOT NULL,
            CONSTRAINT audit_figures_pkey PRIMARY KEY (tenant_id, hour, key)
        ) WITH (fillfactor = 50)"""  # the rows of the current hour are updated again and again, in place
    )
    op.execute("LOCK TABLE audit_entries IN SHARE MODE")  # an old replica may be storing entries
    op.execute(
        """INSERT INTO audit_figures (tenant_id, hour, key, entries)
        SELECT tenant_id, occurred_at - occurred_at % 3600000 AS hour, key, count(*)
        FROM audit_entries GROUP BY tenant_id, hour, key"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE audit_figures")
