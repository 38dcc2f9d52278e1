"""Links in mails, each spent once."""

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE mailed_links (
            tenant_id text COLLATE "C" NOT NULL,
            kind text COLLATE "C" NOT NULL,
            subject text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            user_id text COLLATE "C",
            address text NOT NULL,
            tokens_valid_after bigint,
            context text NOT NULL,
            created_at bigint NOT NULL,
            expires_at bigint NOT NULL,
            CONSTRAINT mailed_links_pkey PRIMARY KEY (tenant_id, kind, subject),
            CONSTRAINT mailed_links_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE,
            CONSTRAINT mailed_links_sha256_unique UNIQUE (tenant_id, sha256)
        )"""
    )
    op.execute("CREATE INDEX mailed_links_by_expiry ON mailed_links (tenant_id, expires_at)")
    op.execute("CREATE INDEX mailed_links_by_user ON mailed_links (tenant_id, user_id)")


def downgrade() -> None:
    op.execute("DROP TABLE mailed_links")
