"""DDL of the outbox, for the migrations of each source's database."""

from typing import Final

from identity_common.stores.database_servers import THIS_SERVER

CREATE: Final = (
    # One row for each tenant. Updated by the last statement of a transaction: revisions are in the order of commits.
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
    # Deletions, for a republication.
    """CREATE TABLE deleted_aggregate (
        tenant_id text NOT NULL,
        subject text NOT NULL,
        revision bigint NOT NULL,
        type text NOT NULL,
        aggregate text NOT NULL,
        data text NOT NULL,
        PRIMARY KEY (tenant_id, subject)
    )""",
    # A row while a republication is in progress.
    """CREATE TABLE republication (
        tenant_id text PRIMARY KEY,
        last_revision bigint
    )""",
)
# Trace context of the request that made the change (W3C Trace Context), for the message that the relay publishes.
ADD_TRACEPARENT: Final = "ALTER TABLE outbox ADD COLUMN traceparent text"
DROP_TRACEPARENT: Final = "ALTER TABLE outbox DROP COLUMN traceparent"

CREATE_AUDIT: Final = (
    # Counted in the row of the revision: one lock, and no further statement.
    "ALTER TABLE source_revision ADD COLUMN audit_sequence bigint DEFAULT 0 NOT NULL",
    """CREATE TABLE audit_outbox (
        tenant_id text NOT NULL,
        sequence bigint NOT NULL,
        revision bigint NOT NULL,
        entry text NOT NULL,
        PRIMARY KEY (tenant_id, sequence)
    )""",
)
"""Added by a later migration."""
ADD_CHECKED_SERVER: Final = (
    "ALTER TABLE source_revision ADD COLUMN checked_server text",
    # A service that starts without the bus after this migration goes on writing.
    f"UPDATE source_revision SET checked_server = {THIS_SERVER}",  # noqa: S608 - a constant
)
"""The server on which the database was found to have every published change (``LostWrites``)."""
DROP_CHECKED_SERVER: Final = "ALTER TABLE source_revision DROP COLUMN checked_server"

CREATE_MAIL: Final = (
    """CREATE TABLE mail_outbox (
        tenant_id text NOT NULL,
        id text NOT NULL,
        sealed bytea NOT NULL,
        created_at bigint NOT NULL,
        PRIMARY KEY (tenant_id, id)
    )""",
    "CREATE INDEX mail_outbox_order ON mail_outbox (tenant_id, created_at)",
)
"""Mail that is not published yet (``MailOutbox``)."""
DROP_MAIL: Final = "DROP TABLE mail_outbox"

DROP_AUDIT: Final = (
    "DROP TABLE audit_outbox",
    "ALTER TABLE source_revision DROP COLUMN audit_sequence",
)
DROP: Final = (
    "DROP TABLE republication",
    "DROP TABLE deleted_aggregate",
    "DROP TABLE outbox",
    "DROP TABLE source_revision",
)
