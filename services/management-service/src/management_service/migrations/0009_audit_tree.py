"""The Merkle tree of the audit trail: tiles, the last signed head, keys, each entry's leaf, and erasures."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.execute("ALTER TABLE audit_entries ADD leaf_index bigint, ADD salt bytea, ADD personal_hash bytea")
    op.execute(
        """CREATE TABLE audit_trees (
            tenant_id text COLLATE "C" NOT NULL,
            log_id text COLLATE "C" NOT NULL,
            size bigint NOT NULL,
            signed_size bigint DEFAULT 0 NOT NULL,
            signed_root bytea,
            head text,
            CONSTRAINT audit_trees_pkey PRIMARY KEY (tenant_id)
        )"""
    )
    op.execute(
        """CREATE TABLE audit_tiles (
            tenant_id text COLLATE "C" NOT NULL,
            level integer NOT NULL,
            number bigint NOT NULL,
            hashes bytea NOT NULL,
            CONSTRAINT audit_tiles_pkey PRIMARY KEY (tenant_id, level, number)
        )"""
    )
    op.execute("ALTER TABLE audit_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL")  # hashes do not compress
    op.execute(
        """CREATE TABLE audit_keys (
            tenant_id text COLLATE "C" NOT NULL,
            kid text COLLATE "C" NOT NULL,
            private_key bytea NOT NULL,
            created_at bigint NOT NULL,
            CONSTRAINT audit_keys_pkey PRIMARY KEY (tenant_id, kid)
        )"""
    )
    op.execute(
        """CREATE TABLE audit_erasures (
            tenant_id text COLLATE "C" NOT NULL,
            user_id text COLLATE "C" NOT NULL,
            is_pending boolean NOT NULL,
            CONSTRAINT audit_erasures_pkey PRIMARY KEY (tenant_id, user_id)
        )"""
    )
    op.execute("CREATE INDEX audit_erasures_pending ON audit_erasures (tenant_id, user_id) WHERE is_pending")


def downgrade() -> None:
    op.execute("DROP TABLE audit_erasures")
    op.execute("DROP TABLE audit_keys")
    op.execute("DROP TABLE audit_tiles")
    op.execute("DROP TABLE audit_trees")
    op.execute("ALTER TABLE audit_entries DROP leaf_index, DROP salt, DROP personal_hash")
