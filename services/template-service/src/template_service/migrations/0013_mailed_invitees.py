"""When an address was sent invitations, also those that were deleted since."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE mailed_invitees (
            tenant_id text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            sent_at bigint[] NOT NULL,
            expires_at bigint NOT NULL,
            CONSTRAINT mailed_invitees_pkey PRIMARY KEY (tenant_id, sha256)
        )"""
    )
    op.execute("CREATE INDEX mailed_invitees_by_expiry ON mailed_invitees (tenant_id, expires_at)")


def downgrade() -> None:
    op.execute("DROP TABLE mailed_invitees")
