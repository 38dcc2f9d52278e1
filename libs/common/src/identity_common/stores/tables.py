"""What the tables of every service are made of. Every table has ``tenant_id`` in its primary and its foreign keys."""

from typing import Final

from sqlalchemy import Column, ForeignKeyConstraint, Text

Key: Final = Text(collation="C")
"""Ids, keys and the names that lists are ordered by: one order on every machine, whatever its locale."""


def tenant_id() -> Column[str]:
    """Return the first column of every table."""
    return Column("tenant_id", Key, primary_key=True)


def reference(table: str, column: str, target: str) -> ForeignKeyConstraint:
    """Return the foreign key of a relation to an aggregate: the relation goes when what it points to goes."""
    return ForeignKeyConstraint(
        ["tenant_id", column],
        [f"{target}.tenant_id", f"{target}.id"],
        name=f"{table}_{column.removesuffix('_id')}_fkey",
        ondelete="CASCADE",
    )
