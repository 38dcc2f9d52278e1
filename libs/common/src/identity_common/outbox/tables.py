"""DDL of the outbox, for the first migration of each source's database."""

from typing import Final

CREATE: Final = (
    # One row a tenant. Updated as the last statement of a transaction: the order of commits is the order of revisions.
    """CREATE TABLE source_revision (
        tenant_id text PRIMARY KEY,
        revision bigint NOT NULL
    )""",
    """CREATE TABLE outbox (
        tenant_id text NOT NULL,
        revision bigint NOT NULL,
        subject text NOT NULL,
        type text NOT NULL,
        aggregate text NOT NULL,
        occurred_at bigint NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (tenant_id, revision)
    )""",
    # What was deleted, so that the whole state can be sent again, deletions included.
    """CREATE TABLE deleted_aggregate (
        tenant_id text NOT NULL,
        subject text NOT NULL,
        revision bigint NOT NULL,
        type text NOT NULL,
        aggregate text NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (tenant_id, subject)
    )""",
    # There while the whole state is being sent again.
    """CREATE TABLE republication (
        tenant_id text PRIMARY KEY,
        last_revision bigint
    )""",
)
DROP: Final = (
    "DROP TABLE republication",
    "DROP TABLE deleted_aggregate",
    "DROP TABLE outbox",
    "DROP TABLE source_revision",
)
