"""Signing keys."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE signing_key (
            tenant_id text NOT NULL,
            kid text NOT NULL,
            algorithm text NOT NULL CHECK (algorithm IN ('ES256', 'EdDSA', 'RS256')),
            status text NOT NULL CHECK (status IN ('Next', 'Current', 'Previous')),
            private_key bytea NOT NULL,
            created_at bigint NOT NULL,
            valid_until bigint NOT NULL,
            PRIMARY KEY (tenant_id, kid)
        )
        """
    )
    op.execute("CREATE UNIQUE INDEX one_current_signing_key ON signing_key (tenant_id) WHERE status = 'Current'")
    op.execute("CREATE UNIQUE INDEX one_next_signing_key ON signing_key (tenant_id) WHERE status = 'Next'")


def downgrade() -> None:
    op.execute("DROP TABLE signing_key")
