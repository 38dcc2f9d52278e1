"""The targets of an entry of the audit trail include the ids in the body of the request."""

from alembic import op

revision = "0016"
down_revision = "0015"

TARGETS = """
    SELECT value FROM json_each_text(entry -> 'ids')
    UNION
    SELECT id FROM json_each(entry -> 'given') AS member, json_array_elements_text(member.value) AS id
    UNION
    SELECT part FROM json_array_elements_text(entry -> 'aggregates') AS aggregate,
        unnest((string_to_array(aggregate, '/'))[2:]) AS part WHERE length(part) <= 256
"""
BEFORE = """
    SELECT value FROM json_each_text(entry -> 'ids')
    UNION
    SELECT part FROM json_array_elements_text(entry -> 'aggregates') AS aggregate,
        unnest((string_to_array(aggregate, '/'))[2:]) AS part WHERE length(part) <= 256
"""
REPLACE = "CREATE OR REPLACE FUNCTION targets_of_entry(entry json) RETURNS SETOF text LANGUAGE sql AS $$ {} $$"


def upgrade() -> None:
    op.execute(REPLACE.format(TARGETS))  # entries from before have no such ids


def downgrade() -> None:
    op.execute(REPLACE.format(BEFORE))
