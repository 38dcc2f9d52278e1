"""Since when a connector admits people as it does now; earlier sign-ins do not show that they still can."""

from alembic import op

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    op.execute("ALTER TABLE connectors ADD COLUMN admits_since bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE connectors DROP COLUMN admits_since")
