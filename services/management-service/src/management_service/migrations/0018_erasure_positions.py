"""How far the entries of a deleted user were erased."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.execute(
        """ALTER TABLE audit_erasures
            ADD after_time bigint DEFAULT 0 NOT NULL,
            ADD after_number bigint DEFAULT 0 NOT NULL"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE audit_erasures DROP after_time, DROP after_number")
