"""The targets of each entry of the audit trail: the objects in the path of a write, and those that it changed.

A trigger stores them, so that entries stored by a replica of the previous release have them too.
"""

from alembic import op

revision = "0015"
down_revision = "0014"

TARGETS = """
    SELECT value FROM json_each_text(entry -> 'ids')
    UNION
    SELECT part FROM json_array_elements_text(entry -> 'aggregates') AS aggregate,
        unnest((string_to_array(aggregate, '/'))[2:]) AS part WHERE length(part) <= 256
"""
STORE = """
    BEGIN
        INSERT INTO audit_targets (tenant_id, target_id, occurred_at, number)
        SELECT NEW.tenant_id, target, NEW.occurred_at, NEW.number FROM targets_of_entry(NEW.entry::json) AS target;
        RETURN NULL;
    END
"""
PARTITIONS = """
    DO $$
    DECLARE month record;
    BEGIN
        FOR month IN
            SELECT replace(relname, 'audit_entries', 'audit_targets') AS name,
                pg_get_expr(relpartbound, pg_class.oid) AS bounds
            FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'audit_entries'::regclass
        LOOP
            EXECUTE format('CREATE TABLE %I PARTITION OF audit_targets %s', month.name, month.bounds);
        END LOOP;
    END $$
"""
WRITES = "log IN ('management', 'template', 'token')"  # the others have a subject token, and no targets


def upgrade() -> None:
    op.execute("LOCK TABLE audit_entries IN SHARE ROW EXCLUSIVE MODE")  # an old replica may be storing entries
    op.execute(
        """CREATE TABLE audit_targets (
            tenant_id text COLLATE "C" NOT NULL,
            target_id text COLLATE "C" NOT NULL,
            occurred_at bigint NOT NULL,
            number bigint NOT NULL,
            CONSTRAINT audit_targets_pkey PRIMARY KEY (tenant_id, target_id, occurred_at, number)
        ) PARTITION BY RANGE (occurred_at)"""
    )
    op.execute(PARTITIONS)
    op.execute(f"CREATE FUNCTION targets_of_entry(entry json) RETURNS SETOF text LANGUAGE sql AS $$ {TARGETS} $$")
    op.execute(f"CREATE FUNCTION store_audit_targets() RETURNS trigger LANGUAGE plpgsql AS $$ {STORE} $$")
    op.execute(
        f"""CREATE TRIGGER store_targets AFTER INSERT ON audit_entries FOR EACH ROW
        WHEN (NEW.{WRITES}) EXECUTE FUNCTION store_audit_targets()"""
    )
    op.execute(
        f"""INSERT INTO audit_targets (tenant_id, target_id, occurred_at, number)
        SELECT tenant_id, target, occurred_at, number FROM audit_entries, targets_of_entry(entry::json) AS target
        WHERE {WRITES}"""  # noqa: S608 - of constants
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER store_targets ON audit_entries")
    op.execute("DROP FUNCTION store_audit_targets")
    op.execute("DROP FUNCTION targets_of_entry")
    op.execute("DROP TABLE audit_targets")
