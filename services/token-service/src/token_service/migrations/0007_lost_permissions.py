"""How far the not-valid feed has read the events of members' permissions, which are in another stream."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("ALTER TABLE not_valid_feed ADD COLUMN events_stream text NOT NULL DEFAULT ''")
    op.execute("ALTER TABLE not_valid_feed ADD COLUMN events_position bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE not_valid_feed DROP COLUMN events_position")
    op.execute("ALTER TABLE not_valid_feed DROP COLUMN events_stream")
