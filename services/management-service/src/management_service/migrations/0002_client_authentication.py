"""How applications authenticate at the token endpoint, and whether their authorization requests need PKCE.

The columns keep their defaults, because replicas of the previous release go on inserting rows without them.
"""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(
        """ALTER TABLE applications
        ADD COLUMN token_endpoint_auth_method text NOT NULL DEFAULT 'client_secret_basic',
        ADD COLUMN require_pkce boolean NOT NULL DEFAULT true,
        ADD CONSTRAINT applications_third_party_pkce CHECK (require_pkce OR NOT is_third_party)"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE applications DROP COLUMN require_pkce, DROP COLUMN token_endpoint_auth_method")
