"""How far the stream of management-service has been read; the previous release reads a copy, at other positions."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE projection_position (
            tenant_id text COLLATE "C" NOT NULL,
            stream text NOT NULL,
            sequence bigint NOT NULL,
            revision bigint NOT NULL,
            complete boolean NOT NULL,
            read_revision bigint DEFAULT -1 NOT NULL,
            CONSTRAINT projection_position_pkey PRIMARY KEY (tenant_id)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE projection_position")
