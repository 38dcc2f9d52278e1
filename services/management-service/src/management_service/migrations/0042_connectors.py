"""Connectors to OpenID providers, and the identities that users have there."""

from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE connectors (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            name text COLLATE "C" NOT NULL,
            issuer text COLLATE "C" NOT NULL,
            match_claim text COLLATE "C" NOT NULL,
            is_enabled boolean NOT NULL,
            actor_clients text[] NOT NULL,
            trusted_factors text NOT NULL,
            created_at bigint NOT NULL,
            sort_key text COLLATE "C" GENERATED ALWAYS AS (name_sort_key(name)) STORED,
            CONSTRAINT connectors_pkey PRIMARY KEY (tenant_id, id),
            CONSTRAINT connectors_name_unique UNIQUE (tenant_id, name),
            CONSTRAINT connectors_issuer_unique UNIQUE (tenant_id, issuer)
        )"""
    )
    op.execute(
        """CREATE TABLE identities (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            connector_id text COLLATE "C" NOT NULL,
            value text COLLATE "C" NOT NULL,
            created_at bigint NOT NULL,
            CONSTRAINT identities_pkey PRIMARY KEY (tenant_id, id),
            CONSTRAINT identities_value_unique UNIQUE (tenant_id, connector_id, value),
            CONSTRAINT identities_user_fkey FOREIGN KEY (tenant_id, user_id)
                REFERENCES users (tenant_id, id) ON DELETE CASCADE,
            CONSTRAINT identities_connector_fkey FOREIGN KEY (tenant_id, connector_id)
                REFERENCES connectors (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX identities_by_user ON identities (tenant_id, user_id, created_at, id)")


def downgrade() -> None:
    op.execute("DROP TABLE identities")
    op.execute("DROP TABLE connectors")
