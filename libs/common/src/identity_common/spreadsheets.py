"""Tables for people and spreadsheets (RFC 4180). Pure."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Final

CSV: Final = "text/csv"

_FORMULA: Final = re.compile(r"^(?=[=+\-@\t\r\n])|(?<=[;\t\r\n])(?=\"*[=+\-@])")
"""Where a formula would begin: in the cell, or in one, even quoted, of a spreadsheet with other separators."""


def csv_rows(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows of a table, in which text that begins like a formula has an apostrophe before it."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([*map(_not_a_formula, row)] for row in rows)
    return text.getvalue().encode()


def _not_a_formula(cell: str) -> str:
    """Return text that a spreadsheet does not take for a formula: an apostrophe before it makes it text."""
    return _FORMULA.sub("'", cell)
