"""How far the not-valid feed has read the stream of template-service; the previous release reads a copy of a part."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("ALTER TABLE not_valid_feed ADD COLUMN template_stream text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE not_valid_feed ADD COLUMN template_position bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE not_valid_feed DROP COLUMN template_position")
    op.execute("ALTER TABLE not_valid_feed DROP COLUMN template_stream")
