"""Through which connector an authorization came, and in which session at its provider; NULL: through none."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute('ALTER TABLE authorizations ADD COLUMN connector_id text COLLATE "C"')
    op.execute("ALTER TABLE authorizations ADD COLUMN provider_session_id text")
    op.execute("""
        CREATE INDEX authorizations_by_connector ON authorizations (tenant_id, connector_id, auth_time)
        WHERE connector_id IS NOT NULL AND ended_at IS NULL
    """)


def downgrade() -> None:
    op.execute("DROP INDEX authorizations_by_connector")
    op.execute("ALTER TABLE authorizations DROP COLUMN provider_session_id")
    op.execute("ALTER TABLE authorizations DROP COLUMN connector_id")
