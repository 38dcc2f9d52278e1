"""When the code of an authorization was redeemed: it begins before that."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE authorizations ADD COLUMN redeemed_at bigint")
    op.execute("UPDATE authorizations SET redeemed_at = begun_at")  # so far they began when they were redeemed


def downgrade() -> None:
    op.execute("DELETE FROM authorizations WHERE redeemed_at IS NULL AND ended_at IS NULL")  # did not begin, then
    op.execute("ALTER TABLE authorizations DROP COLUMN redeemed_at")
