"""Invitations to organizations."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE organization_invitations (
            tenant_id text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL,
            organization_id text COLLATE "C" NOT NULL,
            invitee text COLLATE "C" NOT NULL,
            invitee_key text COLLATE "C" NOT NULL,
            inviter_id text COLLATE "C",
            accepted_user_id text COLLATE "C",
            role_ids text[] NOT NULL,
            status text NOT NULL,
            created_at bigint NOT NULL,
            updated_at bigint NOT NULL,
            expires_at bigint NOT NULL,
            sent_at bigint[] NOT NULL,
            link_sha256 text COLLATE "C",
            CONSTRAINT organization_invitations_pkey PRIMARY KEY (tenant_id, id),
            CONSTRAINT organization_invitations_organization_fkey FOREIGN KEY (tenant_id, organization_id)
                REFERENCES organizations (tenant_id, id) ON DELETE CASCADE,
            CONSTRAINT organization_invitations_link_unique UNIQUE (tenant_id, link_sha256)
        )"""
    )
    op.execute(
        """CREATE UNIQUE INDEX organization_invitations_pending_unique
            ON organization_invitations (tenant_id, organization_id, invitee_key) WHERE status = 'Pending'"""
    )
    for name, columns in (
        ("address", "invitee_key, id"),
        ("organization", "organization_id, invitee_key, id"),
        ("user", "accepted_user_id"),
    ):
        op.execute(
            f"CREATE INDEX organization_invitations_by_{name} ON organization_invitations (tenant_id, {columns})"
        )


def downgrade() -> None:
    op.execute("DROP TABLE organization_invitations")
