"""Since when tokens are valid: of an application that may exchange again, and of a resource that was created again."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("ALTER TABLE applications ADD COLUMN exchanged_valid_after bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE resources ADD COLUMN tokens_valid_after bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE resources DROP COLUMN tokens_valid_after")
    op.execute("ALTER TABLE applications DROP COLUMN exchanged_valid_after")
