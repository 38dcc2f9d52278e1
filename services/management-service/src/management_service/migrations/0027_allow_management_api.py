"""Which applications may request tokens for the Management API on behalf of their users: only the console's, so far.

That is the oldest application that looks like it, as a later one may have been made to look like it. The column keeps
its default, because replicas of the previous release go on inserting rows without it.
"""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.execute("ALTER TABLE applications ADD COLUMN allow_management_api boolean NOT NULL DEFAULT false")
    op.execute(
        """WITH consoles AS (
            SELECT DISTINCT ON (tenant_id) tenant_id, id FROM applications
            WHERE name = 'Console' AND type = 'Traditional' AND NOT is_third_party
                AND cardinality(redirect_uris) = 1 AND redirect_uris[1] LIKE '%/console/callback'
            ORDER BY tenant_id, created_at, id
        ), marked AS (
            UPDATE applications SET allow_management_api = true FROM consoles
            WHERE applications.tenant_id = consoles.tenant_id AND applications.id = consoles.id
            RETURNING applications.tenant_id
        )
        INSERT INTO republication (tenant_id) SELECT tenant_id FROM marked
        ON CONFLICT (tenant_id) DO UPDATE SET last_revision = NULL"""
    )


def downgrade() -> None:
    op.execute("ALTER TABLE applications DROP COLUMN allow_management_api")
