"""Indexes of the trail by outcome and by ticket.

The key of an entry says how what it tells of ended, so the outcome costs no reading of its JSON. Most entries tell of a
success: they are found in the order of the trail, and are not in the index. An erasure takes the ticket from the entry,
and with it from the index.
"""

from alembic import op

revision = "0029"
down_revision = "0028"

OUTCOME = """
    BEGIN
        RETURN CASE
            WHEN key LIKE '%.refused' OR key LIKE '%.throttled' THEN 'refused'
            WHEN key IN ('token.exchange.unknown', 'audit.gap') THEN 'unknown'
            ELSE 'success'
        END;
    END
"""
TICKET = """BEGIN RETURN lower((entry::json -> 'context' ->> 'ticketId') COLLATE "C"); END"""


def upgrade() -> None:
    for declaration, body in (("audit_outcome(key text)", OUTCOME), ("audit_ticket(entry text)", TICKET)):
        op.execute(
            f"""CREATE FUNCTION {declaration} RETURNS text
            LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$ {body} $$"""
        )
    op.execute(
        """CREATE INDEX audit_entries_by_outcome
        ON audit_entries (tenant_id, audit_outcome(key), occurred_at, number)
        WHERE audit_outcome(key) <> 'success'"""
    )
    op.execute(
        """CREATE INDEX audit_impersonations_by_ticket
        ON audit_entries (tenant_id, audit_ticket(entry) COLLATE "C", occurred_at, number)
        WHERE key = 'subject-token.issued' AND audit_ticket(entry) IS NOT NULL"""
    )


def downgrade() -> None:
    op.execute("DROP INDEX audit_impersonations_by_ticket")
    op.execute("DROP INDEX audit_entries_by_outcome")
    for function in ("audit_outcome", "audit_ticket"):
        op.execute(f"DROP FUNCTION {function}")
