"""The parties of each impersonation, for those of its entries that do not name them, such as its end.

A trigger stores them, so that entries stored by a replica of the previous release have them too. It runs once for each
batch, because entries about one impersonation arrive together, and in any order: those of two logs overtake each other.
"""

from alembic import op

revision = "0025"
down_revision = "0024"

# A user is a party once the subject token was issued for it or taken by it; a refused attempt makes no one a party.
_PARTIES = """
    INSERT INTO audit_parties (tenant_id, party_id, occurred_at, number)
    SELECT entry.tenant_id, party, entry.occurred_at, entry.number FROM about AS entry
        JOIN about AS beginning USING (tenant_id, subject_token_id)
        CROSS JOIN LATERAL unnest(ARRAY[beginning.user_id, beginning.actor_id, beginning.requested_by]) AS party
    WHERE beginning.key IN ('subject-token.issued', 'token.exchange.taken', 'token.exchange.succeeded')
        AND party IS NOT NULL AND party IS DISTINCT FROM entry.user_id AND party IS DISTINCT FROM entry.actor_id
        AND party IS DISTINCT FROM entry.requested_by
    ON CONFLICT DO NOTHING
"""
_STORE = f"""
    BEGIN
        IF EXISTS (SELECT FROM stored WHERE subject_token_id IS NOT NULL) THEN
            WITH about AS MATERIALIZED (
                SELECT entries.* FROM (
                    SELECT DISTINCT tenant_id, subject_token_id FROM stored WHERE subject_token_id IS NOT NULL
                ) AS impersonation CROSS JOIN LATERAL (
                    SELECT tenant_id, subject_token_id, occurred_at, number, key, user_id, actor_id, requested_by
                    FROM audit_entries WHERE tenant_id = impersonation.tenant_id
                        AND subject_token_id = impersonation.subject_token_id OFFSET 0
                ) AS entries
            ) {_PARTIES};
        END IF;
        RETURN NULL;
    END
"""  # noqa: S608 - of constants
_PARTITIONS = """
    DO $$
    DECLARE month record;
    BEGIN
        FOR month IN
            SELECT replace(relname, 'audit_entries', 'audit_parties') AS name,
                pg_get_expr(relpartbound, pg_class.oid) AS bounds
            FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'audit_entries'::regclass
        LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF audit_parties %s', month.name, month.bounds);
        END LOOP;
    END $$
"""


def upgrade() -> None:
    op.execute("LOCK TABLE audit_entries IN SHARE ROW EXCLUSIVE MODE")  # an old replica may be storing entries
    op.execute(
        """CREATE TABLE audit_parties (
            tenant_id text COLLATE "C" NOT NULL,
            party_id text COLLATE "C" NOT NULL,
            occurred_at bigint NOT NULL,
            number bigint NOT NULL,
            CONSTRAINT audit_parties_pkey PRIMARY KEY (tenant_id, party_id, occurred_at, number)
        ) PARTITION BY RANGE (occurred_at)"""
    )
    op.execute(_PARTITIONS)
    # A plan is kept: one that was made for a small batch and small partitions must suit large ones. LATERAL with OFFSET
    # allows nothing but a nested loop; what is joined otherwise must not be read again for each row.
    op.execute(
        f"""CREATE FUNCTION store_audit_parties() RETURNS trigger LANGUAGE plpgsql
        SET enable_seqscan = off SET enable_nestloop = off SET jit = off AS $$ {_STORE} $$"""
    )
    op.execute(
        """CREATE TRIGGER store_parties AFTER INSERT ON audit_entries REFERENCING NEW TABLE AS stored
        FOR EACH STATEMENT EXECUTE FUNCTION store_audit_parties()"""
    )
    op.execute(f"WITH about AS (SELECT * FROM audit_entries WHERE subject_token_id IS NOT NULL) {_PARTIES}")  # noqa: S608 - of constants
    op.execute(
        """CREATE INDEX audit_entries_by_user_id_and_key ON audit_entries (tenant_id, user_id, key, occurred_at, number)
        WHERE user_id IS NOT NULL"""
    )
    op.execute("DROP INDEX audit_impersonations_by_user_id")


def downgrade() -> None:
    op.execute(
        """CREATE INDEX audit_impersonations_by_user_id ON audit_entries (tenant_id, user_id, key, occurred_at, number)
        WHERE user_id IS NOT NULL AND subject_token_id IS NOT NULL"""
    )
    op.execute("DROP INDEX audit_entries_by_user_id_and_key")
    op.execute("DROP TRIGGER store_parties ON audit_entries")
    op.execute("DROP FUNCTION store_audit_parties")
    op.execute("DROP TABLE audit_parties")
