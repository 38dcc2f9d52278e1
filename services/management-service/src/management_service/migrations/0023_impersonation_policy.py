"""The policy of impersonations: what an exchange needs, and which users cannot be impersonated.

A tenant that exists gets one with everything off, so that its next ``bootstrap`` does not turn anything on.
"""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE impersonation_policies (
            tenant_id text COLLATE "C" NOT NULL,
            require_actor boolean NOT NULL,
            require_context text[] NOT NULL,
            excluded_roles text[] NOT NULL,
            CONSTRAINT impersonation_policies_pkey PRIMARY KEY (tenant_id)
        )"""
    )
    op.execute("INSERT INTO impersonation_policies SELECT tenant_id, false, '{}', '{}' FROM source_revision")


def downgrade() -> None:
    op.execute("DROP TABLE impersonation_policies")
