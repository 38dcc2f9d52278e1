"""The order of lists by name: regardless of case and accents. Names that no object may have any more are logged.

The tables are rewritten, as a generated column is computed.
"""

from alembic import op

from identity_common.stores import names

revision = "0007"
down_revision = "0006"

NAMED = ("permissions", "roles", "organizations", "members", "known_scopes")
INDEXES = {"organizations": ("tenant_id", "id"), "members": ("listed_in", "member_id")}


def upgrade() -> None:
    op.execute(names.CREATE_SORT_KEY)
    for table in NAMED:
        op.execute(f"ALTER TABLE {table} {names.ADD_SORT_KEY}")
    for table, (first, last) in INDEXES.items():
        op.execute(f"DROP INDEX {table}_by_name")
        op.execute(f"CREATE INDEX {table}_by_name ON {table} ({first}, sort_key, name, {last})")
    for table in ("roles", "organizations"):
        names.report_names(op.get_bind(), table)


def downgrade() -> None:
    for table, (first, last) in INDEXES.items():
        op.execute(f"DROP INDEX {table}_by_name")
        op.execute(f"CREATE INDEX {table}_by_name ON {table} ({first}, name, {last})")
    for table in NAMED:
        op.execute(f"ALTER TABLE {table} DROP COLUMN sort_key")
    op.execute(names.DROP_SORT_KEY)
