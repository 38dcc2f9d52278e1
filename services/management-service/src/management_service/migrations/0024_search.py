"""The words of names and reasons, and request ids, in indexes for the search.

The words of a reason are in an index of the entries themselves: what an erasure removes from an entry, it removes from
the index. Other entries than those that issue subject tokens are not in it.
"""

from alembic import op

from identity_common.stores.words import CREATE_SEARCH_WORDS, DROP_SEARCH_WORDS, create_words_index

revision = "0024"
down_revision = "0023"

SEARCHED = {
    "users": ("name", "username", "primary_email", "primary_phone"),
    "applications": ("name", "description"),
    "resources": ("name", "indicator"),
    "scopes": ("name", "description"),
    "roles": ("name", "description"),
}
CONTEXT = """
    DECLARE context json := entry::json -> 'context';
    BEGIN
        RETURN coalesce(context ->> 'ticketId', '') || ' ' || coalesce(context ->> 'reason', '');
    END
"""
REQUEST_ID = "BEGIN RETURN entry::json ->> 'requestId'; END"


def upgrade() -> None:
    op.execute(CREATE_SEARCH_WORDS)
    for name, body in (("audit_context", CONTEXT), ("audit_request_id", REQUEST_ID)):
        op.execute(
            f"""CREATE FUNCTION {name}(entry text) RETURNS text
            LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$ {body} $$"""
        )
    for table, columns in SEARCHED.items():
        op.execute(create_words_index(table, *columns))
    op.execute(
        """CREATE INDEX audit_impersonations_by_words ON audit_entries
        USING gin (search_words(name_sort_key(audit_context(entry)))) WHERE key = 'subject-token.issued'"""
    )
    op.execute("CREATE INDEX audit_entries_by_request_id ON audit_entries USING hash (audit_request_id(entry))")


def downgrade() -> None:
    for index in ("audit_entries_by_request_id", "audit_impersonations_by_words"):
        op.execute(f"DROP INDEX {index}")
    for table in SEARCHED:
        op.execute(f"DROP INDEX {table}_by_words")
    for function in ("audit_context", "audit_request_id"):
        op.execute(f"DROP FUNCTION {function}")
    op.execute(DROP_SEARCH_WORDS)
