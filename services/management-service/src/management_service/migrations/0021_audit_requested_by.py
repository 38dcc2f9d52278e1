"""The user for whom an application requested a subject token, in a separate column with an index.

No release has stored entries that name one, so there is nothing to backfill.
"""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.execute('ALTER TABLE audit_entries ADD COLUMN requested_by text COLLATE "C"')
    op.execute(
        """CREATE INDEX audit_entries_by_requested_by ON audit_entries (tenant_id, requested_by, occurred_at, number)
        WHERE requested_by IS NOT NULL"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE audit_entries DROP COLUMN requested_by")
