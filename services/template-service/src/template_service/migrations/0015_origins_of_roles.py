"""Why members hold their roles, and belong to their organizations: existing ones by administrators."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # A constant default rewrites no row.
    op.execute("ALTER TABLE member_roles ADD COLUMN origins text[] DEFAULT '{manual}' NOT NULL")
    op.execute("ALTER TABLE members ADD COLUMN by_groups boolean DEFAULT false NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE members DROP COLUMN by_groups")
    op.execute("ALTER TABLE member_roles DROP COLUMN origins")
