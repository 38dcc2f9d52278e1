"""The mail outbox: mail that a transaction wants sent."""

from alembic import op

from identity_common.outbox.tables import CREATE_MAIL, DROP_MAIL

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    for statement in CREATE_MAIL:
        op.execute(statement)


def downgrade() -> None:
    op.execute(DROP_MAIL)
