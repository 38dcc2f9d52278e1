"""Requested ends of impersonations beside the ends of parties: an impersonation shows the first that applied."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute(
        """INSERT INTO party_ends (tenant_id, party, ended_at, cause, ended_by)
        SELECT tenant_id, replace(id, 'impersonations:', ''), begun_until, 'ended', NULL
        FROM impersonation_ends WHERE begun_until IS NOT NULL
        UNION ALL
        SELECT tenant_id, 'impersonation:' || id, expires_at - 366::bigint * 86400000, 'ended', (
            SELECT coalesce(user_id, application_id) FROM audit_entries
            WHERE tenant_id = ended.tenant_id AND subject_token_id = ended.id
                AND operation IN ('EndImpersonation', 'EndOwnImpersonation')
            ORDER BY occurred_at LIMIT 1
        )
        FROM impersonation_ends AS ended WHERE begun_until IS NULL
        ON CONFLICT DO NOTHING"""
    )


def downgrade() -> None:
    op.execute("DELETE FROM party_ends WHERE cause = 'ended'")
