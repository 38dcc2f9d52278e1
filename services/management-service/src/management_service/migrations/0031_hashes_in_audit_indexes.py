"""Indexes of the trail by the hash of what they find, in half the space.

An index row has the hash and the time, eight bytes each. Such rows are small enough for PostgreSQL to fill the pages of
an index in which every value grows at its own end; wider ones leave half of each page empty.

The planner uses no statistics of a partial index, so each partition has some of the hashes, as new ones do.

The indexes are created before those that they replace are dropped, because the latter locks out readers.
"""

from alembic import op

revision = "0031"
down_revision = "0030"


def _hash(*members: str) -> str:
    """Return the SQL of the hash of a tenant and of members of an entry."""
    hashed = "0"
    for each in ("tenant_id", *members):
        hashed = f"hashtextextended({each}, {hashed})"
    return f"({hashed})"


_COLUMNS = ("operation", "application_id", "user_id", "requested_by", "actor_id", "organization_id")
_PLACE = "occurred_at, number"
_BEGUN = "subject_token_id IS NOT NULL"
# Name → the columns before, the columns now, and the condition.
_INDEXES = {
    "audit_entries_by_id": ("tenant_id, id", _hash("id"), None),
    "audit_entries_by_key": (f"tenant_id, key, {_PLACE}", f"{_hash('key')}, occurred_at", None),
    **{
        f"audit_entries_by_{each}": (
            f"tenant_id, {each}, {_PLACE}",
            f"{_hash(each)}, occurred_at",
            f"{each} IS NOT NULL",
        )
        for each in _COLUMNS
    },
    "audit_entries_by_subject_token_id": (
        f"tenant_id, subject_token_id, {_PLACE}",
        _hash("subject_token_id"),
        _BEGUN,
    ),
    "audit_entries_by_user_id_and_key": (
        f"tenant_id, user_id, key, {_PLACE}",
        f"{_hash('user_id', 'key')}, occurred_at",
        "user_id IS NOT NULL",
    ),
    **{
        f"audit_impersonations_by_{each}": (
            f"tenant_id, {each}, key, {_PLACE}",
            f"{_hash(each, 'key')}, occurred_at",
            f"{each} IS NOT NULL AND {_BEGUN}",
        )
        for each in ("application_id", "organization_id")
    },
}

_STATISTICS = {
    **{each: _hash(each) for each in (*_COLUMNS, "subject_token_id")},
    **{f"{each}_and_key": _hash(each, "key") for each in ("user_id", "application_id", "organization_id")},
}
_PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'audit_entries'::regclass"
_REQUEST_ID = """split_part(split_part(entry, '"requestId":"', 2), '"', 1)"""
_UNUSED = "audit_entries_by_written_user_id"
_SETTINGS = "LANGUAGE plpgsql SET enable_seqscan = off SET enable_nestloop = off SET jit = off"
# The rules are those of revision 0029, but inlined, because an index needs them for every entry: a function that is
# STRICT, or in plpgsql, is called.
_OUTCOME = """
    SELECT CASE
        WHEN key LIKE '%.refused' OR key LIKE '%.throttled' THEN 'refused'
        WHEN key IN ('token.exchange.unknown', 'audit.gap') THEN 'unknown'
        ELSE 'success'
    END
"""
# As in revision 0025, but with the new index, and without a call for each pair of entries and each party. COALESCE
# hides the tenant from the planner: a plan from when a partition is empty must not walk all entries of the tenant.
_PARTIES = """
    BEGIN
        IF EXISTS (SELECT FROM stored WHERE subject_token_id IS NOT NULL) THEN
            WITH about AS MATERIALIZED (
                SELECT entries.* FROM (
                    SELECT DISTINCT tenant_id, subject_token_id FROM stored WHERE subject_token_id IS NOT NULL
                ) AS impersonation CROSS JOIN LATERAL (
                    SELECT tenant_id, subject_token_id, occurred_at, number, key, user_id, actor_id, requested_by
                    FROM audit_entries WHERE coalesce(tenant_id = impersonation.tenant_id
                        AND subject_token_id = impersonation.subject_token_id, false)
                        AND hashtextextended(subject_token_id, hashtextextended(tenant_id, 0)) =
                            hashtextextended(impersonation.subject_token_id,
                                hashtextextended(impersonation.tenant_id, 0))
                    OFFSET 0
                ) AS entries
            ), beginning AS MATERIALIZED (
                SELECT * FROM about
                WHERE key IN ('subject-token.issued', 'token.exchange.taken', 'token.exchange.succeeded')
            )
            INSERT INTO audit_parties (tenant_id, party_id, occurred_at, number)
            SELECT entry.tenant_id, party, entry.occurred_at, entry.number FROM about AS entry JOIN (
                SELECT tenant_id, subject_token_id, user_id AS party FROM beginning
                UNION SELECT tenant_id, subject_token_id, actor_id FROM beginning
                UNION SELECT tenant_id, subject_token_id, requested_by FROM beginning
            ) AS parties USING (tenant_id, subject_token_id)
            WHERE party IS NOT NULL AND party IS DISTINCT FROM entry.user_id
                AND party IS DISTINCT FROM entry.actor_id AND party IS DISTINCT FROM entry.requested_by
            ON CONFLICT DO NOTHING;
        END IF;
        RETURN NULL;
    END
"""


def upgrade() -> None:
    for name in (*_INDEXES, "audit_entries_by_request_id"):
        op.execute(f"ALTER INDEX {name} RENAME TO {name}_before")
    for name, (_, columns, condition) in _INDEXES.items():
        op.execute(_create(name, columns, condition))
    # Where the JSON of an entry has its request id, which takes a tenth of the time of parsing it. Whatever else this
    # finds, a search compares the parsed id.
    op.execute(
        f"""CREATE INDEX audit_entries_by_request_id ON audit_entries
        ({_hash(_REQUEST_ID)})"""
    )
    # There are few numberings, which the services name at random: two of them do not have one hash of 64 bits.
    op.execute(
        f"CREATE UNIQUE INDEX audit_entries_numbered ON audit_entries ({_hash('log', 'epoch')}, sequence, occurred_at)"
    )
    for (partition,) in op.get_bind().exec_driver_sql(_PARTITIONS).all():
        for name, expression in _STATISTICS.items():
            op.execute(f"CREATE STATISTICS IF NOT EXISTS {partition}_{name} ON {expression} FROM {partition}")
    op.execute(f"CREATE OR REPLACE FUNCTION store_audit_parties() RETURNS trigger {_SETTINGS} AS $$ {_PARTIES} $$")
    op.execute(
        f"""CREATE OR REPLACE FUNCTION audit_outcome(key text) RETURNS text
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ {_OUTCOME} $$"""
    )
    op.execute("ALTER TABLE audit_entries DROP CONSTRAINT audit_entries_numbered_once")
    for name in (*(f"{name}_before" for name in (*_INDEXES, "audit_entries_by_request_id")), _UNUSED):
        op.execute(f"DROP INDEX {name}")
    op.execute("ANALYZE audit_entries")  # nothing else does, of months that are over


def downgrade() -> None:
    """Restore the indexes; the functions suit these too."""
    op.execute("DROP INDEX audit_entries_numbered")
    for (partition,) in op.get_bind().exec_driver_sql(_PARTITIONS).all():
        for name in _STATISTICS:
            op.execute(f"DROP STATISTICS IF EXISTS {partition}_{name}")
    for name in (*_INDEXES, "audit_entries_by_request_id"):
        op.execute(f"DROP INDEX {name}")
    for name, (columns, _, condition) in _INDEXES.items():
        op.execute(_create(name, columns, condition))
    op.execute(_create(_UNUSED, f"tenant_id, written_user_id, {_PLACE}", "written_user_id IS NOT NULL"))
    op.execute("CREATE INDEX audit_entries_by_request_id ON audit_entries USING hash (audit_request_id(entry))")
    op.execute(
        """ALTER TABLE audit_entries ADD CONSTRAINT audit_entries_numbered_once
        UNIQUE (tenant_id, log, epoch, sequence, occurred_at)"""
    )


def _create(name: str, columns: str, condition: str | None) -> str:
    where = "" if condition is None else f" WHERE {condition}"
    return f"CREATE INDEX {name} ON audit_entries ({columns}){where}"
