"""When and by whom an invitation was created, and the list of those that were not accepted.

Invitations from before have neither a time nor an author.
"""

from alembic import op

revision = "0030"
down_revision = "0029"

_COLUMNS = ("created_at bigint", "inviter_id text", "application_id text")


def upgrade() -> None:
    op.execute("ALTER TABLE invitations " + ", ".join(f"ADD COLUMN {column}" for column in _COLUMNS))
    op.execute("CREATE INDEX invitations_by_expiry ON invitations (tenant_id, expires_at, user_id)")


def downgrade() -> None:
    op.execute("DROP INDEX invitations_by_expiry")
    for column in reversed(_COLUMNS):
        op.execute(f"ALTER TABLE invitations DROP COLUMN {column.split()[0]}")
