"""The tokensValidAfter that an authorization's sign-in was judged against; NULL: ``auth_time`` counts."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("ALTER TABLE authorizations ADD COLUMN judged_valid_after bigint")


def downgrade() -> None:
    op.execute("ALTER TABLE authorizations DROP COLUMN judged_valid_after")
