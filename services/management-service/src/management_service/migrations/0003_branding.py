"""Logo and colour of applications."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute("ALTER TABLE applications ADD COLUMN logo_uri text, ADD COLUMN primary_color text")


def downgrade() -> None:
    op.execute("ALTER TABLE applications DROP COLUMN primary_color, DROP COLUMN logo_uri")
