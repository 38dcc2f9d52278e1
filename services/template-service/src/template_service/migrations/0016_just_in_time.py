"""Membership just in time: its configuration, and what sign-ins through connectors said."""

from alembic import op

revision = "0016"
down_revision = "0015"

_TABLES = (
    """CREATE TABLE known_connectors (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        revision bigint DEFAULT 0 NOT NULL,
        CONSTRAINT known_connectors_pkey PRIMARY KEY (tenant_id, id)
    )""",
    """CREATE TABLE known_identities (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        connector_id text COLLATE "C" NOT NULL,
        email_domain text COLLATE "C",
        groups text[] NOT NULL,
        is_gone boolean NOT NULL,
        is_applied boolean NOT NULL,
        revision bigint DEFAULT 0 NOT NULL,
        CONSTRAINT known_identities_pkey PRIMARY KEY (tenant_id, id)
    )""",
    """CREATE TABLE jit_email_domains (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        email_domain text COLLATE "C" NOT NULL,
        CONSTRAINT jit_email_domains_pkey PRIMARY KEY (tenant_id, organization_id, email_domain),
        CONSTRAINT jit_email_domains_organization_fkey FOREIGN KEY (tenant_id, organization_id)
            REFERENCES organizations (tenant_id, id) ON DELETE CASCADE
    )""",
    """CREATE TABLE jit_sso_connectors (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        connector_id text COLLATE "C" NOT NULL,
        CONSTRAINT jit_sso_connectors_pkey PRIMARY KEY (tenant_id, organization_id, connector_id),
        CONSTRAINT jit_sso_connectors_organization_fkey FOREIGN KEY (tenant_id, organization_id)
            REFERENCES organizations (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT jit_sso_connectors_connector_fkey FOREIGN KEY (tenant_id, connector_id)
            REFERENCES known_connectors (tenant_id, id) ON DELETE CASCADE
    )""",
    """CREATE TABLE jit_roles (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        CONSTRAINT jit_roles_pkey PRIMARY KEY (tenant_id, organization_id, role_id),
        CONSTRAINT jit_roles_organization_fkey FOREIGN KEY (tenant_id, organization_id)
            REFERENCES organizations (tenant_id, id) ON DELETE CASCADE
    )""",
    """CREATE TABLE jit_groups (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        connector_id text COLLATE "C" NOT NULL,
        group_value text COLLATE "C" NOT NULL,
        role_ids text[] NOT NULL,
        CONSTRAINT jit_groups_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT jit_groups_organization_fkey FOREIGN KEY (tenant_id, organization_id)
            REFERENCES organizations (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT jit_groups_connector_fkey FOREIGN KEY (tenant_id, connector_id)
            REFERENCES known_connectors (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT jit_groups_group_unique UNIQUE (tenant_id, connector_id, group_value, organization_id)
    )""",
)
_INDEXES = (
    "known_identities_by_user ON known_identities (tenant_id, user_id, connector_id)",
    "known_identities_to_apply ON known_identities (tenant_id, id) WHERE NOT is_applied",
    "jit_email_domains_by_domain ON jit_email_domains (tenant_id, email_domain, organization_id)",
    "jit_sso_connectors_by_connector ON jit_sso_connectors (tenant_id, connector_id, organization_id)",
    "jit_groups_by_organization ON jit_groups (tenant_id, organization_id, group_value, id)",
)


def upgrade() -> None:
    for table in _TABLES:
        op.execute(table)
    for index in _INDEXES:
        op.execute(f"CREATE INDEX {index}")
    op.execute("ALTER TABLE projection_position ADD COLUMN applied_revision bigint DEFAULT -1 NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE projection_position DROP COLUMN applied_revision")
    for name in ("groups", "roles", "sso_connectors", "email_domains"):
        op.execute(f"DROP TABLE jit_{name}")
    op.execute("DROP TABLE known_identities")
    op.execute("DROP TABLE known_connectors")
