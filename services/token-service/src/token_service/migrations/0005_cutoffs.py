"""Cutoffs: revocations of all impersonations of a party that began until a moment."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE revocations ADD COLUMN begun_until bigint")


def downgrade() -> None:
    op.execute("DELETE FROM revocations WHERE begun_until IS NOT NULL")
    op.execute("ALTER TABLE revocations DROP COLUMN begun_until")
