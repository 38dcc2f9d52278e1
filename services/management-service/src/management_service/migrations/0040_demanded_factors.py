"""How strongly users must have signed in: what the policy of signing in and applications demand."""

from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    op.execute("""ALTER TABLE sign_in_policies ADD COLUMN second_factor text COLLATE "C" NOT NULL DEFAULT 'optional'""")
    op.execute("ALTER TABLE applications ADD COLUMN minimum_acr text")


def downgrade() -> None:
    op.execute("ALTER TABLE applications DROP COLUMN minimum_acr")
    op.execute("ALTER TABLE sign_in_policies DROP COLUMN second_factor")
