"""How strongly users must have signed in: for the tenant, for an application, and as actors."""

from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    op.execute("""ALTER TABLE sign_in_policies ADD COLUMN second_factor text COLLATE "C" NOT NULL DEFAULT 'optional'""")
    op.execute("ALTER TABLE applications ADD COLUMN minimum_acr text")
    op.execute("ALTER TABLE impersonation_policies ADD COLUMN actor_max_age_s integer, ADD COLUMN actor_acr text")


def downgrade() -> None:
    op.execute("ALTER TABLE impersonation_policies DROP COLUMN actor_max_age_s, DROP COLUMN actor_acr")
    op.execute("ALTER TABLE applications DROP COLUMN minimum_acr")
    op.execute("ALTER TABLE sign_in_policies DROP COLUMN second_factor")
