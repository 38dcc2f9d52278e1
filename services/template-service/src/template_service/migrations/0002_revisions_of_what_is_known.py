"""Revisions of known aggregates, and the highest watermark that was read."""

from alembic import op

revision = "0002"
down_revision = "0001"

TABLES = ("known_users", "known_applications", "known_resources", "known_scopes")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN revision bigint DEFAULT 0 NOT NULL")
    op.execute("ALTER TABLE directory_position ADD COLUMN read_revision bigint DEFAULT -1 NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE directory_position DROP COLUMN read_revision")
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN revision")
