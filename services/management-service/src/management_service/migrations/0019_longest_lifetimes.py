"""The longest lifetime that an access token may have had: ends of impersonations are kept for no longer."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE longest_lifetimes (
            tenant_id text COLLATE "C" NOT NULL,
            lifetime_s integer NOT NULL,
            CONSTRAINT longest_lifetimes_pkey PRIMARY KEY (tenant_id)
        )"""
    )
    op.execute(  # tokens of a resource that was deleted or changed may be valid for a year
        """INSERT INTO longest_lifetimes (tenant_id, lifetime_s)
        SELECT tenant_id, CASE
            WHEN EXISTS (
                SELECT FROM audit_entries WHERE audit_entries.tenant_id = resources.tenant_id AND (
                    operation = 'DeleteResource' OR operation = 'UpdateResource' AND entry LIKE '%"accessTokenTtl"%'
                )
            ) THEN 365 * 86400
            ELSE max(access_token_ttl_s)
        END FROM resources GROUP BY tenant_id"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE longest_lifetimes")
