"""Users who may sign in with a password although a connector has their address."""

from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    op.execute("ALTER TABLE users ADD COLUMN allows_password boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE users DROP COLUMN allows_password")
