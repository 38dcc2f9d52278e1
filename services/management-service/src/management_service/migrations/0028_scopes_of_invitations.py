"""Invitations keep the scopes that they were created with, so that none takes over what the user is given later.

Those of commands, and of replicas of the previous release, have none and are not limited.
"""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.execute("ALTER TABLE invitations ADD COLUMN scopes text[]")


def downgrade() -> None:
    op.execute("ALTER TABLE invitations DROP COLUMN scopes")
