"""Connectors through which people sign in."""

from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    op.execute(
        """ALTER TABLE connectors
            ADD COLUMN client_id text COLLATE "C",
            ADD COLUMN sealed_secret bytea,
            ADD COLUMN scope text COLLATE "C" NOT NULL DEFAULT 'openid profile email',
            ADD COLUMN display_name text,
            ADD COLUMN logo_uri text,
            ADD COLUMN allowed_domains text[] NOT NULL DEFAULT '{}',
            ADD COLUMN required_claims text NOT NULL DEFAULT '[]',
            ADD COLUMN groups_claim text COLLATE "C",
            ADD COLUMN sync_profile boolean NOT NULL DEFAULT false,
            ADD COLUMN session_max_age_s integer,
            ADD COLUMN closed_at bigint NOT NULL DEFAULT 0"""
    )
    op.execute(
        """CREATE TABLE connector_domains (
            tenant_id text COLLATE "C" NOT NULL,
            domain text COLLATE "C" NOT NULL,
            connector_id text COLLATE "C" NOT NULL,
            CONSTRAINT connector_domains_pkey PRIMARY KEY (tenant_id, domain),
            CONSTRAINT connector_domains_connector_fkey FOREIGN KEY (tenant_id, connector_id)
                REFERENCES connectors (tenant_id, id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX connector_domains_by_connector ON connector_domains (tenant_id, connector_id)")
    op.execute(
        """ALTER TABLE identities
            ADD COLUMN signed_in_at bigint,
            ADD COLUMN email_domain text COLLATE "C",
            ADD COLUMN groups text[] NOT NULL DEFAULT '{}'"""
    )
    op.execute(
        """CREATE TABLE spent_tickets (
            tenant_id text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            expires_at bigint NOT NULL,
            CONSTRAINT spent_tickets_pkey PRIMARY KEY (tenant_id, sha256)
        )"""
    )
    op.execute("CREATE INDEX spent_tickets_by_expiry ON spent_tickets (tenant_id, expires_at)")


def downgrade() -> None:
    op.execute("DROP TABLE spent_tickets")
    op.execute("ALTER TABLE identities DROP COLUMN signed_in_at, DROP COLUMN email_domain, DROP COLUMN groups")
    op.execute("DROP TABLE connector_domains")
    op.execute(
        """ALTER TABLE connectors
            DROP COLUMN client_id,
            DROP COLUMN sealed_secret,
            DROP COLUMN scope,
            DROP COLUMN display_name,
            DROP COLUMN logo_uri,
            DROP COLUMN allowed_domains,
            DROP COLUMN required_claims,
            DROP COLUMN groups_claim,
            DROP COLUMN sync_profile,
            DROP COLUMN session_max_age_s,
            DROP COLUMN closed_at"""
    )
