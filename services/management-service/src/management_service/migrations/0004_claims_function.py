"""The custom-claims function: one row for each kind of token, and its immutable versions."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE claims_functions (
            tenant_id text COLLATE "C" NOT NULL,
            kind text COLLATE "C" NOT NULL,
            last_version integer NOT NULL,
            active_version integer,
            CONSTRAINT claims_functions_pkey PRIMARY KEY (tenant_id, kind)
        )"""
    )
    op.execute(
        """CREATE TABLE claims_function_versions (
            tenant_id text COLLATE "C" NOT NULL,
            kind text COLLATE "C" NOT NULL,
            version integer NOT NULL,
            script text NOT NULL,
            sealed_environment_variables text NOT NULL,
            environment_variable_names text[] NOT NULL,
            context_sample text,
            token_sample text,
            block_issuance_on_error boolean NOT NULL,
            created_at bigint NOT NULL,
            created_by_application_id text NOT NULL,
            created_by_user_id text,
            CONSTRAINT claims_function_versions_pkey PRIMARY KEY (tenant_id, kind, version),
            CONSTRAINT claims_function_versions_kind_fkey FOREIGN KEY (tenant_id, kind)
                REFERENCES claims_functions (tenant_id, kind)
        )"""
    )


def downgrade() -> None:
    op.execute("DROP TABLE claims_function_versions")
    op.execute("DROP TABLE claims_functions")
