"""Building blocks of all tables. Every table has ``tenant_id`` in its primary and foreign keys."""

from typing import Final

from sqlalchemy import Column, ForeignKeyConstraint, Text

Key: Final = Text(collation="C")
"""Type of ids, keys and names that lists are ordered by: the same order in every locale."""


def tenant_id() -> Column[str]:
    """Return the first column of every table."""
    return Column("tenant_id", Key, primary_key=True)


def reference(table: str, column: str, target: str) -> ForeignKeyConstraint:
    """Return the foreign key of a relation to an aggregate; deleting the aggregate deletes the relation."""
    return ForeignKeyConstraint(
        ["tenant_id", column],
        [f"{target}.tenant_id", f"{target}.id"],
        name=f"{table}_{column.removesuffix('_id')}_fkey",
        ondelete="CASCADE",
    )
