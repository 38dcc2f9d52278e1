"""The server on which the database was found to have every published change."""

from alembic import op

from identity_common.outbox.tables import ADD_CHECKED_SERVER, DROP_CHECKED_SERVER

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    for statement in ADD_CHECKED_SERVER:
        op.execute(statement)


def downgrade() -> None:
    op.execute(DROP_CHECKED_SERVER)
