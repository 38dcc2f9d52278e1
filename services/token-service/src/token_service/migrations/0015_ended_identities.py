"""How far each reader has read a stream, and an index of the authorizations of a session at a provider."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE read_positions (
            tenant_id text COLLATE "C" NOT NULL,
            reader text COLLATE "C" NOT NULL,
            stream text NOT NULL,
            position bigint NOT NULL,
            CONSTRAINT read_positions_pkey PRIMARY KEY (tenant_id, reader)
        )
    """)
    op.execute("""
        CREATE INDEX authorizations_by_provider_session
        ON authorizations (tenant_id, connector_id, provider_session_id)
        WHERE provider_session_id IS NOT NULL AND ended_at IS NULL
    """)


def downgrade() -> None:
    op.execute("DROP INDEX authorizations_by_provider_session")
    op.execute("DROP TABLE read_positions")
