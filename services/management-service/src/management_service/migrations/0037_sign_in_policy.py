"""The policy of signing in: who may register."""

from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE sign_in_policies (
            tenant_id text COLLATE "C" NOT NULL,
            registration text COLLATE "C" NOT NULL,
            registration_domains text[] NOT NULL,
            CONSTRAINT sign_in_policies_pkey PRIMARY KEY (tenant_id)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE sign_in_policies")
