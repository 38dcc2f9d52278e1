"""The factors that a user had used when an authorization began; NULL: a password, at ``auth_time``."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.execute("ALTER TABLE authorizations ADD COLUMN factors text")


def downgrade() -> None:
    op.execute("ALTER TABLE authorizations DROP COLUMN factors")
