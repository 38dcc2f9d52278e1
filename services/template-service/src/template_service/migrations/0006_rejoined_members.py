"""Whether a member was removed before it joined, for verifiers that may not have heard of the removal."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("ALTER TABLE members ADD COLUMN rejoined boolean NOT NULL DEFAULT false")


def downgrade() -> None:
    op.execute("ALTER TABLE members DROP COLUMN rejoined")
