"""Mail that was given up."""

from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE mail_failures (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            kind text NOT NULL,
            reason text NOT NULL,
            recipient text NOT NULL,
            user_id text COLLATE "C",
            code integer,
            answer text NOT NULL,
            occurred_at bigint NOT NULL,
            CONSTRAINT mail_failures_pkey PRIMARY KEY (tenant_id, id),
            CONSTRAINT mail_failures_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX mail_failures_by_time ON mail_failures (tenant_id, occurred_at, id)")
    op.execute("CREATE INDEX mail_failures_by_user ON mail_failures (tenant_id, user_id)")


def downgrade() -> None:
    op.execute("DROP TABLE mail_failures")
