"""How many connections to PostgreSQL a replica has, by docs/operations/sizing.md."""

import re
from pathlib import Path
from typing import NamedTuple

_PAGE = Path(__file__).parents[2] / "docs/operations/sizing.md"
_ROW = re.compile(r"^\| (\w+-service)" + r" \| (\d+)" * 6 + r" \|$", re.MULTILINE)
_SPARE = re.compile(r"plus (\d+) for Jobs")


class Connections(NamedTuple):
    """A row of the table: the pool, key look-ups, searches, conditions, and workers and listeners; and their sum."""

    pool: int
    lookups: int
    searches: int
    conditions: int
    background: int
    total: int


def documented_connections() -> dict[str, Connections]:
    """Return the row of each service."""
    return {name: Connections(*map(int, numbers)) for name, *numbers in _ROW.findall(_PAGE.read_text())}


def spare_connections() -> int:
    """Return how many are kept for what is not a replica."""
    (found,) = _SPARE.findall(_PAGE.read_text())
    return int(found)
