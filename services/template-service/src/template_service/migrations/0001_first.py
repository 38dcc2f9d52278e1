"""All tables of template-service: its own, the projection of management-service, and the outbox."""

from alembic import op

from identity_common.outbox import tables as outbox

revision = "0001"
down_revision = None

# Ids, keys and names that lists are ordered by are collated "C": the same order on every machine.
CREATE = (
    """CREATE TABLE permissions (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text,
        version bigint NOT NULL,
        CONSTRAINT permissions_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT permissions_name_unique UNIQUE (tenant_id, name)
    )""",
    """CREATE TABLE roles (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text,
        type text NOT NULL,
        version bigint NOT NULL,
        CONSTRAINT roles_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT roles_name_unique UNIQUE (tenant_id, name)
    )""",
    """CREATE TABLE organizations (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text,
        custom_data text NOT NULL,
        is_mfa_required boolean NOT NULL,
        color text NOT NULL,
        branding text NOT NULL,
        custom_css text,
        created_at bigint NOT NULL,
        CONSTRAINT organizations_pkey PRIMARY KEY (tenant_id, id)
    )""",
    "CREATE INDEX organizations_by_name ON organizations (tenant_id, name, id)",
    """CREATE TABLE members (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        member_id text COLLATE "C" NOT NULL,
        member_type text NOT NULL,
        joined_at bigint NOT NULL,
        CONSTRAINT members_pkey PRIMARY KEY (tenant_id, organization_id, member_id)
    )""",
    "CREATE INDEX members_by_member ON members (tenant_id, member_id, organization_id)",
    """CREATE TABLE member_roles (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        member_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        CONSTRAINT member_roles_pkey PRIMARY KEY (tenant_id, organization_id, member_id, role_id),
        CONSTRAINT member_roles_member_fkey FOREIGN KEY (tenant_id, organization_id, member_id)
            REFERENCES members (tenant_id, organization_id, member_id) ON DELETE CASCADE
    )""",
    "CREATE INDEX member_roles_by_role ON member_roles (tenant_id, role_id, organization_id, member_id)",
    """CREATE TABLE known_users (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C",
        is_suspended boolean NOT NULL,
        tokens_valid_after bigint NOT NULL,
        search_key text COLLATE "C" NOT NULL,
        state text NOT NULL,
        CONSTRAINT known_users_pkey PRIMARY KEY (tenant_id, id)
    )""",
    """CREATE TABLE known_applications (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        type text NOT NULL,
        state text NOT NULL,
        CONSTRAINT known_applications_pkey PRIMARY KEY (tenant_id, id)
    )""",
    """CREATE TABLE known_resources (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        indicator text COLLATE "C" NOT NULL,
        CONSTRAINT known_resources_pkey PRIMARY KEY (tenant_id, id)
    )""",
    """CREATE TABLE known_scopes (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        resource_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        CONSTRAINT known_scopes_pkey PRIMARY KEY (tenant_id, id)
    )""",
    "CREATE INDEX known_scopes_by_resource ON known_scopes (tenant_id, resource_id, id)",
    """CREATE TABLE directory_position (
        tenant_id text COLLATE "C" NOT NULL,
        stream text NOT NULL,
        sequence bigint NOT NULL,
        revision bigint NOT NULL,
        complete boolean NOT NULL,
        CONSTRAINT directory_position_pkey PRIMARY KEY (tenant_id)
    )""",
    """CREATE TABLE role_permissions (
        tenant_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        permission_id text COLLATE "C" NOT NULL,
        CONSTRAINT role_permissions_pkey PRIMARY KEY (tenant_id, role_id, permission_id),
        CONSTRAINT role_permissions_role_fkey FOREIGN KEY (tenant_id, role_id)
            REFERENCES roles (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT role_permissions_permission_fkey FOREIGN KEY (tenant_id, permission_id)
            REFERENCES permissions (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX role_permissions_by_permission ON role_permissions (tenant_id, permission_id, role_id)",
    """CREATE TABLE role_scopes (
        tenant_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        scope_id text COLLATE "C" NOT NULL,
        CONSTRAINT role_scopes_pkey PRIMARY KEY (tenant_id, role_id, scope_id),
        CONSTRAINT role_scopes_role_fkey FOREIGN KEY (tenant_id, role_id)
            REFERENCES roles (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT role_scopes_scope_fkey FOREIGN KEY (tenant_id, scope_id)
            REFERENCES known_scopes (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX role_scopes_by_scope ON role_scopes (tenant_id, scope_id, role_id)",
    """CREATE TABLE published_permissions (
        tenant_id text COLLATE "C" NOT NULL,
        organization_id text COLLATE "C" NOT NULL,
        member_id text COLLATE "C" NOT NULL,
        member_type text NOT NULL,
        version bigint NOT NULL,
        permissions text NOT NULL,
        CONSTRAINT published_permissions_pkey PRIMARY KEY (tenant_id, organization_id, member_id)
    )""",
    """CREATE TABLE fan_outs (
        tenant_id text COLLATE "C" NOT NULL,
        id bigint GENERATED ALWAYS AS IDENTITY,
        cause text NOT NULL,
        role_id text COLLATE "C",
        organization_id text COLLATE "C",
        member_ids text[],
        after_organization_id text COLLATE "C" DEFAULT '' NOT NULL,
        after_member_id text COLLATE "C" DEFAULT '' NOT NULL,
        CONSTRAINT fan_outs_pkey PRIMARY KEY (tenant_id, id)
    )""",
)
TABLES = (
    "fan_outs",
    "published_permissions",
    "role_scopes",
    "role_permissions",
    "directory_position",
    "known_scopes",
    "known_resources",
    "known_applications",
    "known_users",
    "member_roles",
    "members",
    "organizations",
    "roles",
    "permissions",
)


def upgrade() -> None:
    for statement in (*outbox.CREATE, *CREATE):
        op.execute(statement)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    for statement in outbox.DROP:
        op.execute(statement)
