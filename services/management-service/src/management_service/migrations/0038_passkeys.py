"""Passkeys, and which second factors a user has."""

from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.execute("ALTER TABLE users ADD COLUMN second_factors text[] NOT NULL DEFAULT '{}'")
    op.execute(
        """CREATE TABLE passkeys (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            credential_id bytea NOT NULL,
            public_key bytea NOT NULL,
            sign_count bigint NOT NULL,
            aaguid text COLLATE "C" NOT NULL,
            name text NOT NULL,
            transports text[] NOT NULL,
            is_backup_eligible boolean NOT NULL,
            is_backed_up boolean NOT NULL,
            created_at bigint NOT NULL,
            last_used_at bigint,
            CONSTRAINT passkeys_pkey PRIMARY KEY (tenant_id, id),
            CONSTRAINT passkeys_credential_unique UNIQUE (tenant_id, credential_id),
            CONSTRAINT passkeys_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX passkeys_by_user ON passkeys (tenant_id, user_id, created_at, id)")
    op.execute(
        """CREATE TABLE user_handles (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            handle bytea NOT NULL,
            CONSTRAINT user_handles_pkey PRIMARY KEY (tenant_id, user_id),
            CONSTRAINT user_handles_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE user_handles")
    op.execute("DROP TABLE passkeys")
    op.execute("ALTER TABLE users DROP COLUMN second_factors")
