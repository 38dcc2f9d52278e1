"""Invitations of users to choose a password."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE invitations (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            tokens_valid_after bigint NOT NULL,
            expires_at bigint NOT NULL,
            CONSTRAINT invitations_pkey PRIMARY KEY (tenant_id, user_id),
            CONSTRAINT invitations_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE,
            CONSTRAINT invitations_sha256_unique UNIQUE (tenant_id, sha256)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE invitations")
