"""The trace that a change belongs to."""

from alembic import op

from identity_common.outbox import tables

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(tables.ADD_TRACEPARENT)


def downgrade() -> None:
    op.execute(tables.DROP_TRACEPARENT)
