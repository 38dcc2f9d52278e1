"""How many users a tenant has, counted in the transaction that adds or deletes them.

A tenant has as many rows as transactions have counted at once: each takes a row that no other one holds, so none waits.
"""

from alembic import op

revision = "0032"
down_revision = "0031"

_COUNT = """
    DECLARE
        changed record;
    BEGIN
        FOR changed IN
            SELECT tenant_id, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END AS number
            FROM changed_users GROUP BY tenant_id
        LOOP
            UPDATE user_counts SET users = users + changed.number
            WHERE tenant_id = changed.tenant_id AND part = (
                SELECT part FROM user_counts WHERE tenant_id = changed.tenant_id
                ORDER BY part LIMIT 1 FOR UPDATE SKIP LOCKED
            );
            IF NOT FOUND THEN
                INSERT INTO user_counts (tenant_id, users) VALUES (changed.tenant_id, changed.number);
            END IF;
        END LOOP;
        RETURN NULL;
    END
"""
_COUNT_NONE = "BEGIN DELETE FROM user_counts; RETURN NULL; END"
_FUNCTIONS = {"count_users": _COUNT, "count_no_users": _COUNT_NONE}
_TRIGGERS = {
    "count_added_users": "AFTER INSERT ON users REFERENCING NEW TABLE AS changed_users"
    " FOR EACH STATEMENT EXECUTE FUNCTION count_users()",
    "count_deleted_users": "AFTER DELETE ON users REFERENCING OLD TABLE AS changed_users"
    " FOR EACH STATEMENT EXECUTE FUNCTION count_users()",
    "count_truncated_users": "AFTER TRUNCATE ON users FOR EACH STATEMENT EXECUTE FUNCTION count_no_users()",
}


def upgrade() -> None:
    # A replica of the previous release may be adding a user, which no trigger would see yet.
    op.execute("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE")
    op.execute("""
        CREATE TABLE user_counts (
            tenant_id text COLLATE "C" NOT NULL,
            part bigint GENERATED ALWAYS AS IDENTITY,
            users bigint NOT NULL,
            PRIMARY KEY (tenant_id, part)
        )
    """)
    op.execute("INSERT INTO user_counts (tenant_id, users) SELECT tenant_id, count(*) FROM users GROUP BY tenant_id")
    for name, body in _FUNCTIONS.items():
        op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $${body}$$")
    for name, event in _TRIGGERS.items():
        op.execute(f"CREATE TRIGGER {name} {event}")


def downgrade() -> None:
    for name in _TRIGGERS:
        op.execute(f"DROP TRIGGER {name} ON users")
    for name in _FUNCTIONS:
        op.execute(f"DROP FUNCTION {name}")
    op.execute("DROP TABLE user_counts")
