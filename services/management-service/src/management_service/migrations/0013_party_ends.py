"""When a change of a user, an application or a resource ended its impersonations."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE party_ends (
            tenant_id text COLLATE "C" NOT NULL,
            party text COLLATE "C" NOT NULL,
            ended_at bigint NOT NULL,
            cause text COLLATE "C" NOT NULL,
            ended_by text COLLATE "C",
            CONSTRAINT party_ends_pkey PRIMARY KEY (tenant_id, party, ended_at)
        )"""
    )
    op.execute("CREATE INDEX party_ends_by_time ON party_ends (tenant_id, ended_at)")


def downgrade() -> None:
    op.execute("DROP TABLE party_ends")
