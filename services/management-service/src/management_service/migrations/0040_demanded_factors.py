"""How strongly users must have signed in, as the policy of signing in demands it."""

from alembic import op

revision = "0040"
down_revision = "0037"


def upgrade() -> None:
    op.execute("""ALTER TABLE sign_in_policies ADD COLUMN second_factor text COLLATE "C" NOT NULL DEFAULT 'optional'""")


def downgrade() -> None:
    op.execute("ALTER TABLE sign_in_policies DROP COLUMN second_factor")
