"""Names in PostgreSQL: the key that lists are ordered by, and names from before there were rules for them.

The key is that of ``identity_common.names.sort_key``, in a generated column: whatever writes a name, a replica of the
previous release or a trigger, the key follows. The embedded PostgreSQL has no ICU, whose collations would do this.
"""

import functools
from typing import Any, Final

from sqlalchemy import Column, Computed, Connection, Table, Text, bindparam, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common import names
from identity_common.names import EXPANDED, IGNORED_RANGES, REPLACED, canonical_name, name_problem
from identity_common.stores.tables import Key
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_REPORTED_IDS: Final = 100


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_FOLDED: Final = f"""translate(
    lower(regexp_replace(normalize(name, NFKD), '[{"".join(IGNORED_RANGES)}]+', '', 'g') COLLATE %I),
    {_quoted("".join(REPLACED))}, {_quoted("".join(REPLACED.values()))}
)"""
_KEY: Final = functools.reduce(
    lambda key, letter: f"replace({key}, '{letter}', '{EXPANDED[letter]}')", EXPANDED, _FOLDED
)

# With the collation "C", lower() knows ASCII only; with pg_c_utf8, it is the same on every machine. Before version 17,
# PostgreSQL does not have that, and the database's own collation may differ in letters that are not ASCII.
CREATE_SORT_KEY: Final = f"""
    DO $create$ BEGIN
        EXECUTE format($format$
            CREATE FUNCTION name_sort_key(name text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
            BEGIN
                IF octet_length(name) = char_length(name) THEN
                    RETURN lower(name COLLATE "C");
                END IF;
                RETURN {_KEY};
            END $$
        $format$, coalesce((SELECT collname FROM pg_collation WHERE collname = 'pg_c_utf8'), 'default'));
    END $create$
"""  # noqa: S608 - of constants
DROP_SORT_KEY: Final = "DROP FUNCTION name_sort_key"
ADD_SORT_KEY: Final = 'ADD COLUMN sort_key text COLLATE "C" GENERATED ALWAYS AS (name_sort_key(name)) STORED'
"""For ``ALTER TABLE``: rewrites the table."""

_TENANT: Final = bindparam("tenant", type_=Text)
_NAME: Final = bindparam("name", type_=Text)
_ID: Final = bindparam("id", type_=Text)
_LETTERS: Final = bindparam("letters", type_=Text)
_KEY_BLANKS: Final = "\t\n\v\f\r\x1c\x1d\x1e\x1f \u0085\u1680\u2028\u2029"  # those that NFKD leaves
_BLANKS: Final = "[\\s\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"


def sort_key() -> Column[str]:
    """Return the column that a list by name is ordered by, before the name and the id."""
    return Column("sort_key", Key, Computed("name_sort_key(name)", persisted=True))


async def has_alike(connection: AsyncConnection, table: Table, tenant_id: str, name: str, *, other_than: str) -> bool:
    """Whether this is the canonical form of a name that an earlier release has stored in another form.

    The unique constraint of the table compares names as they are stored.

    Args:
        connection: Of the transaction that stores the name.
        table: The table.
        tenant_id: The tenant.
        name: A canonical name.
        other_than: Id of the row that gets the name.
    """
    canonical = func.btrim(func.regexp_replace(func.normalize(table.c.name), _BLANKS, " ", "g"))
    alike = select(table.c.id).where(
        table.c.tenant_id == _TENANT,
        table.c.id != _ID,
        func.translate(table.c.sort_key, _KEY_BLANKS, "") == _LETTERS,  # cheap, and true of each other form of the name
        table.c.name != _NAME,
        canonical == _NAME,
    )
    letters = names.sort_key(name).translate(dict.fromkeys(map(ord, _KEY_BLANKS)))
    values = {"tenant": tenant_id, "name": name, "id": other_than, "letters": letters}
    return bool(await connection.scalar(select(alike.exists()), values))


def report_names(connection: Connection, table: str, *, of: str = "id") -> None:
    """Log which rows have a name that is not in canonical form, or not acceptable; they stay as they are.

    Args:
        connection: Of a migration.
        table: The table.
        of: The column that identifies a row in the log.
    """
    unusual = f"SELECT {of}, name FROM {table} WHERE name !~ '^[!-~]+( [!-~]+)*$' ORDER BY 1"  # noqa: S608 - constants
    rows: Any = connection.execute(text(unusual))
    found = [row[0] for row in rows if canonical_name(row[1]) != row[1] or name_problem(row[1]) is not None]
    if found:
        ids = " ".join(found[:_REPORTED_IDS])
        _log.warning("migration.unacceptable-names", kind=table, count=len(found), ids=ids)
