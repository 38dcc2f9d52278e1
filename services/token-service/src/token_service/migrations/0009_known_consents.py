"""Whatever was got before revision 0004 counts as got without a page: third-party applications have to ask again."""

from alembic import op

revision = "0009"
down_revision = "0008"
oldest_code = "0004"


def upgrade() -> None:
    op.execute("UPDATE consents SET implicit = true WHERE implicit IS NULL")
    op.execute("UPDATE authorizations SET first_party = true WHERE first_party IS NULL")
    op.execute("ALTER TABLE consents ALTER COLUMN implicit SET NOT NULL")
    op.execute("ALTER TABLE authorizations ALTER COLUMN first_party SET NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE authorizations ALTER COLUMN first_party DROP NOT NULL")
    op.execute("ALTER TABLE consents ALTER COLUMN implicit DROP NOT NULL")
