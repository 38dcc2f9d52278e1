"""Which consents were given on a page, and which authorizations began while their application was first-party.

NULL: recorded before that was. Only picks of organizations are certain, since first-party applications offer none.
"""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("ALTER TABLE consents ADD COLUMN implicit boolean")
    op.execute("UPDATE consents SET implicit = false WHERE kind = 'organization'")
    op.execute("ALTER TABLE authorizations ADD COLUMN first_party boolean")


def downgrade() -> None:
    op.execute("ALTER TABLE authorizations DROP COLUMN first_party")
    op.execute("ALTER TABLE consents DROP COLUMN implicit")
