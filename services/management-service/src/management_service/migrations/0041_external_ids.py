"""Ids that users have in the systems from which they were moved."""

from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.execute('ALTER TABLE users ADD COLUMN external_id text COLLATE "C"')
    op.execute(
        """CREATE UNIQUE INDEX users_external_id_unique ON users (tenant_id, external_id)
        WHERE external_id IS NOT NULL"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE users DROP COLUMN external_id")
