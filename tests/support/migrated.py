"""Whether the migrations of a database make the tables that the code expects."""

from collections.abc import Collection

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData


def differences(connection: Connection, metadata: MetaData, not_ours: Collection[str]) -> list[object]:
    """Return what differs between a database and what the code says of its tables.

    Args:
        connection: To the database.
        metadata: What the code says.
        not_ours: Tables that it says nothing of.
    """
    context = MigrationContext.configure(
        connection, opts={"include_name": lambda name, kind, _: kind != "table" or name not in not_ours}
    )
    return list(compare_metadata(context, metadata))
