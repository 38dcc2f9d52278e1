"""The audit outbox: entries of the audit trail that are not published yet, and their counter."""

from alembic import op

from identity_common.outbox import tables as outbox

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    for statement in outbox.CREATE_AUDIT:
        op.execute(statement)


def downgrade() -> None:
    for statement in outbox.DROP_AUDIT:
        op.execute(statement)
