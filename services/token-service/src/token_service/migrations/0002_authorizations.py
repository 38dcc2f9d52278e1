"""What a sign-in leaves behind: consents, authorizations, refresh tokens; and revocations."""

from alembic import op

revision = "0002"
down_revision = "0001"

CREATE = (
    """CREATE TABLE consents (
        tenant_id text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        application_id text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        resource text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        consented_at bigint NOT NULL,
        CONSTRAINT consents_pkey PRIMARY KEY (tenant_id, user_id, application_id, kind, resource, name)
    )""",
    """CREATE TABLE authorizations (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        application_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C",
        auth_time bigint NOT NULL,
        consented text NOT NULL,
        begun_at bigint NOT NULL,
        tokens_expire_at bigint NOT NULL,
        ended_at bigint,
        CONSTRAINT authorizations_pkey PRIMARY KEY (tenant_id, id)
    )""",
    "CREATE INDEX authorizations_by_user ON authorizations (tenant_id, user_id, application_id)",
    "CREATE INDEX authorizations_by_session ON authorizations (tenant_id, session_id)",
    "CREATE INDEX authorizations_by_expiry ON authorizations (tenant_id, tokens_expire_at)",
    """CREATE TABLE refresh_tokens (
        tenant_id text COLLATE "C" NOT NULL,
        sha256 text COLLATE "C" NOT NULL,
        authorization_id text COLLATE "C" NOT NULL,
        generation integer NOT NULL,
        issued_at bigint NOT NULL,
        expires_at bigint NOT NULL,
        rotated_at bigint,
        CONSTRAINT refresh_tokens_pkey PRIMARY KEY (tenant_id, sha256),
        CONSTRAINT refresh_tokens_authorization_fkey FOREIGN KEY (tenant_id, authorization_id)
            REFERENCES authorizations (tenant_id, id) ON DELETE CASCADE
    )""",
    "CREATE INDEX refresh_tokens_by_authorization ON refresh_tokens (tenant_id, authorization_id, generation)",
    "CREATE INDEX refresh_tokens_by_expiry ON refresh_tokens (tenant_id, expires_at)",
    """CREATE TABLE revocations (
        tenant_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        expires_at bigint NOT NULL,
        CONSTRAINT revocations_pkey PRIMARY KEY (tenant_id, id)
    )""",
    "CREATE INDEX revocations_by_number ON revocations (tenant_id, number)",
    "CREATE INDEX revocations_by_expiry ON revocations (tenant_id, expires_at)",
    """CREATE TABLE revocation_counts (
        tenant_id text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        CONSTRAINT revocation_counts_pkey PRIMARY KEY (tenant_id)
    )""",
)


def upgrade() -> None:
    for statement in CREATE:
        op.execute(statement)


def downgrade() -> None:
    for table in ("revocation_counts", "revocations", "refresh_tokens", "authorizations", "consents"):
        op.execute(f"DROP TABLE {table}")
