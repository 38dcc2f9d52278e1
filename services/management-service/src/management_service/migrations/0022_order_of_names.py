"""The order of lists by name: regardless of case and accents. Names that no object may have any more are logged.

The tables are rewritten, as a generated column is computed.
"""

from alembic import op

from identity_common.stores import names

revision = "0022"
down_revision = "0021"

INDEXED = ("users", "applications", "resources")
NAMED = (*INDEXED, "scopes", "roles", "application_secrets")


def upgrade() -> None:
    op.execute(names.CREATE_SORT_KEY)
    for table in NAMED:
        op.execute(f"ALTER TABLE {table} {names.ADD_SORT_KEY}")
    for table in INDEXED:
        op.execute(f"DROP INDEX {table}_by_name")
        op.execute(f"CREATE INDEX {table}_by_name ON {table} (tenant_id, sort_key, name, id)")
    for table in (*INDEXED, "roles"):
        names.report_names(op.get_bind(), table)
    names.report_names(op.get_bind(), "application_secrets", of="application_id")


def downgrade() -> None:
    for table in INDEXED:
        op.execute(f"DROP INDEX {table}_by_name")
        op.execute(f"CREATE INDEX {table}_by_name ON {table} (tenant_id, name, id)")
    for table in NAMED:
        op.execute(f"ALTER TABLE {table} DROP COLUMN sort_key")
    op.execute(names.DROP_SORT_KEY)
