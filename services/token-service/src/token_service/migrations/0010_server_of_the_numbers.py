"""The server that last gave numbers to revocations, and the one on which the epoch of the not-valid feed began."""

from alembic import op

from identity_common.stores.database_servers import THIS_SERVER

revision = "0010"
down_revision = "0009"

_TABLES = ("revocation_counts", "not_valid_feed")


def upgrade() -> None:
    for table in _TABLES:
        op.execute(f"ALTER TABLE {table} ADD COLUMN server text")
        op.execute(f"UPDATE {table} SET server = {THIS_SERVER}")  # noqa: S608 - of constants


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.execute(f"ALTER TABLE {table} DROP COLUMN server")
