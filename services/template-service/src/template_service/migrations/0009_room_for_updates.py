"""Half-empty pages for the published permissions, of which a fan-out updates all rows of a page in one transaction.

Full pages keep their rows; an update moves each to a page with room.
"""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("ALTER TABLE published_permissions SET (fillfactor = 50)")


def downgrade() -> None:
    op.execute("ALTER TABLE published_permissions RESET (fillfactor)")
