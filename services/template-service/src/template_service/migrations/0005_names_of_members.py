"""Names of members, to list and search a large organization without looking up each of them.

Triggers maintain them, also for members that a replica of the previous release adds. The plan of a function is cached,
possibly from when a table was small: with sequential scans disabled, it uses an index from the beginning.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

FUNCTIONS = {
    "name_member": """
        IF NEW.member_type = 'user' THEN
            SELECT name, search_key INTO NEW.name, NEW.search_key FROM known_users
            WHERE tenant_id = NEW.tenant_id AND id = NEW.member_id;
        ELSE
            SELECT name INTO NEW.name FROM known_applications
            WHERE tenant_id = NEW.tenant_id AND id = NEW.member_id;
        END IF;
        RETURN NEW;
    """,
    "rename_user": """
        UPDATE members SET name = NEW.name, search_key = NEW.search_key
        WHERE tenant_id = NEW.tenant_id AND member_id = NEW.id AND member_type = 'user';
        RETURN NULL;
    """,
    "rename_application": """
        UPDATE members SET name = NEW.name
        WHERE tenant_id = NEW.tenant_id AND member_id = NEW.id AND member_type = 'application';
        RETURN NULL;
    """,
}


# Used only by the rewrite of the table: with a million members, that takes 11 s, and an UPDATE of them all 26 s.
KNOWN = {
    "known_name": """
        IF member_type = 'user' THEN
            RETURN (SELECT name FROM known_users AS known WHERE known.tenant_id = tenant AND known.id = member);
        END IF;
        RETURN (SELECT name FROM known_applications AS known WHERE known.tenant_id = tenant AND known.id = member);
    """,
    "known_search_key": """
        IF member_type = 'user' THEN
            RETURN (SELECT search_key FROM known_users AS known WHERE known.tenant_id = tenant AND known.id = member);
        END IF;
        RETURN NULL;
    """,
}


def upgrade() -> None:
    # A replica of the previous release may be storing a name, which no trigger would see yet.
    op.execute("LOCK TABLE known_users, known_applications IN SHARE ROW EXCLUSIVE MODE")
    for function, body in KNOWN.items():
        op.execute(
            f"CREATE FUNCTION {function}(tenant text, member_type text, member text) RETURNS text LANGUAGE plpgsql"
            f" AS $$ BEGIN {body} END $$"
        )
    op.execute("SET LOCAL enable_seqscan = off")
    op.execute("ALTER TABLE members ADD COLUMN name text, ADD COLUMN search_key text")
    op.execute("""
        ALTER TABLE members
            ALTER COLUMN name TYPE text COLLATE "C" USING known_name(tenant_id, member_type, member_id),
            ALTER COLUMN search_key TYPE text COLLATE "C" USING known_search_key(tenant_id, member_type, member_id),
            ADD COLUMN listed_in text COLLATE "C"
                GENERATED ALWAYS AS (tenant_id || '/' || organization_id || '/' || member_type) STORED
    """)
    op.execute("SET LOCAL enable_seqscan = on")
    for function in KNOWN:
        op.execute(f"DROP FUNCTION {function}")
    for function, body in FUNCTIONS.items():
        op.execute(
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off"
            f" AS $$ BEGIN {body} END $$"
        )
    op.execute("CREATE TRIGGER name_member BEFORE INSERT ON members FOR EACH ROW EXECUTE FUNCTION name_member()")
    op.execute("""
        CREATE TRIGGER rename_user AFTER UPDATE ON known_users FOR EACH ROW
        WHEN ((OLD.name, OLD.search_key) IS DISTINCT FROM (NEW.name, NEW.search_key))
        EXECUTE FUNCTION rename_user()
    """)
    op.execute("""
        CREATE TRIGGER rename_application AFTER UPDATE ON known_applications FOR EACH ROW
        WHEN (OLD.name IS DISTINCT FROM NEW.name) EXECUTE FUNCTION rename_application()
    """)
    op.execute("CREATE INDEX members_by_name ON members (listed_in, name, member_id)")


def downgrade() -> None:
    op.execute("DROP INDEX members_by_name")
    for table, trigger in (("known_applications", "rename_application"), ("known_users", "rename_user")):
        op.execute(f"DROP TRIGGER {trigger} ON {table}")
    op.execute("DROP TRIGGER name_member ON members")
    for function in FUNCTIONS:
        op.execute(f"DROP FUNCTION {function}")
    op.execute("ALTER TABLE members DROP COLUMN listed_in, DROP COLUMN search_key, DROP COLUMN name")
