"""Authenticator apps, recovery codes, and leave to set up a first factor."""

from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE authenticators (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            sealed bytea NOT NULL,
            last_step bigint NOT NULL,
            created_at bigint NOT NULL,
            last_used_at bigint,
            CONSTRAINT authenticators_pkey PRIMARY KEY (tenant_id, user_id),
            CONSTRAINT authenticators_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute(
        """CREATE TABLE recovery_codes (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            created_at bigint NOT NULL,
            CONSTRAINT recovery_codes_pkey PRIMARY KEY (tenant_id, user_id, sha256),
            CONSTRAINT recovery_codes_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute(
        """CREATE TABLE factor_enrolments (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            origin text COLLATE "C" NOT NULL,
            code_sha256 text COLLATE "C",
            attempts integer NOT NULL,
            expires_at bigint NOT NULL,
            CONSTRAINT factor_enrolments_pkey PRIMARY KEY (tenant_id, user_id, origin),
            CONSTRAINT factor_enrolments_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX factor_enrolments_by_expiry ON factor_enrolments (tenant_id, expires_at)")


def downgrade() -> None:
    for table in ("factor_enrolments", "recovery_codes", "authenticators"):
        op.execute(f"DROP TABLE {table}")
