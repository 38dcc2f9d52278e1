"""All tables of management-service, and the outbox."""

from alembic import op

from identity_common.outbox import tables as outbox

revision = "0001"
down_revision = None

# Ids, keys and the names that lists are ordered by have the collation "C": the same order on every machine.
CREATE = (
    """CREATE TABLE users (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        username text,
        username_key text COLLATE "C",
        primary_email text,
        primary_email_key text COLLATE "C",
        primary_phone text,
        primary_phone_key text COLLATE "C",
        name text COLLATE "C",
        avatar text,
        is_email_verified boolean NOT NULL,
        password_hash text,
        is_suspended boolean NOT NULL,
        tokens_valid_after bigint NOT NULL,
        custom_data text NOT NULL,
        profile text NOT NULL,
        search_key text COLLATE "C" NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        CONSTRAINT users_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT users_username_unique UNIQUE (tenant_id, username_key),
        CONSTRAINT users_primary_email_unique UNIQUE (tenant_id, primary_email_key),
        CONSTRAINT users_primary_phone_unique UNIQUE (tenant_id, primary_phone_key)
    )""",
    "CREATE INDEX users_by_name ON users (tenant_id, name, id)",
    """CREATE TABLE applications (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text,
        type text NOT NULL,
        is_third_party boolean NOT NULL,
        redirect_uris text[] NOT NULL,
        post_logout_redirect_uris text[] NOT NULL,
        allow_token_exchange boolean NOT NULL,
        cors_allowed_origins text[] NOT NULL,
        id_token_ttl_s integer NOT NULL,
        refresh_token_ttl_days integer NOT NULL,
        rotate_refresh_token boolean NOT NULL,
        always_issue_refresh_token boolean NOT NULL,
        custom_data text NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        CONSTRAINT applications_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT applications_third_party_exchange CHECK (NOT (is_third_party AND allow_token_exchange))
    )""",
    "CREATE INDEX applications_by_name ON applications (tenant_id, name, id)",
    """CREATE TABLE application_secrets (
        tenant_id text COLLATE "C" NOT NULL,
        application_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        sha256 text NOT NULL,
        created_at bigint NOT NULL,
        expires_at bigint,
        CONSTRAINT application_secrets_pkey PRIMARY KEY (tenant_id, application_id, name),
        CONSTRAINT application_secrets_application_fkey FOREIGN KEY (tenant_id, application_id)
            REFERENCES applications (tenant_id, id) ON DELETE CASCADE
    )""",
    """CREATE TABLE resources (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        indicator text NOT NULL,
        access_token_ttl_s integer NOT NULL,
        is_default boolean NOT NULL,
        created_at bigint NOT NULL,
        CONSTRAINT resources_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT resources_indicator_unique UNIQUE (tenant_id, indicator)
    )""",
    "CREATE INDEX resources_by_name ON resources (tenant_id, name, id)",
    """CREATE TABLE scopes (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        resource_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text,
        created_at bigint NOT NULL,
        CONSTRAINT scopes_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT scopes_name_unique UNIQUE (tenant_id, resource_id, name),
        CONSTRAINT scopes_resource_fkey FOREIGN KEY (tenant_id, resource_id)
            REFERENCES resources (tenant_id, id) ON DELETE CASCADE
    )""",
    """CREATE TABLE roles (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        description text NOT NULL,
        type text NOT NULL,
        is_default boolean NOT NULL,
        created_at bigint NOT NULL,
        CONSTRAINT roles_pkey PRIMARY KEY (tenant_id, id),
        CONSTRAINT roles_name_unique UNIQUE (tenant_id, name)
    )""",
    "CREATE INDEX roles_default ON roles (tenant_id, id) WHERE is_default",
    # Relations are indexed from both sides.
    """CREATE TABLE role_scopes (
        tenant_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        scope_id text COLLATE "C" NOT NULL,
        CONSTRAINT role_scopes_pkey PRIMARY KEY (tenant_id, role_id, scope_id),
        CONSTRAINT role_scopes_role_fkey FOREIGN KEY (tenant_id, role_id)
            REFERENCES roles (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT role_scopes_scope_fkey FOREIGN KEY (tenant_id, scope_id)
            REFERENCES scopes (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX role_scopes_by_scope ON role_scopes (tenant_id, scope_id, role_id)",
    """CREATE TABLE user_roles (
        tenant_id text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        CONSTRAINT user_roles_pkey PRIMARY KEY (tenant_id, user_id, role_id),
        CONSTRAINT user_roles_user_fkey FOREIGN KEY (tenant_id, user_id)
            REFERENCES users (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT user_roles_role_fkey FOREIGN KEY (tenant_id, role_id)
            REFERENCES roles (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX user_roles_by_role ON user_roles (tenant_id, role_id, user_id)",
    """CREATE TABLE application_roles (
        tenant_id text COLLATE "C" NOT NULL,
        application_id text COLLATE "C" NOT NULL,
        role_id text COLLATE "C" NOT NULL,
        CONSTRAINT application_roles_pkey PRIMARY KEY (tenant_id, application_id, role_id),
        CONSTRAINT application_roles_application_fkey FOREIGN KEY (tenant_id, application_id)
            REFERENCES applications (tenant_id, id) ON DELETE CASCADE,
        CONSTRAINT application_roles_role_fkey FOREIGN KEY (tenant_id, role_id)
            REFERENCES roles (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX application_roles_by_role ON application_roles (tenant_id, role_id, application_id)",
)
TABLES = (
    "application_roles",
    "user_roles",
    "role_scopes",
    "roles",
    "scopes",
    "resources",
    "application_secrets",
    "applications",
    "users",
)


def upgrade() -> None:
    for statement in (*outbox.CREATE, *CREATE):
        op.execute(statement)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    for statement in outbox.DROP:
        op.execute(statement)
