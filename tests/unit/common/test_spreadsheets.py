"""Tables: text of others begins no formula, whatever a spreadsheet takes for the separator."""

import csv
import io

import pytest

from identity_common.spreadsheets import csv_rows

FORMULA = "=1+1"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("before", ["", ";", "\t", "\r\n", 'a;"', 'a;"""', 'a\t"', 'a\n"', '";"'])
def test_no_cell_is_a_formula(before: str, delimiter: str) -> None:
    cell = f"{before}{FORMULA}{delimiter}b"
    table = csv_rows([[cell, "x", cell], ["x", cell, "x"]]).decode()
    found = [each for row in csv.reader(io.StringIO(table, newline=""), delimiter=delimiter) for each in row]
    assert any(FORMULA in each for each in found)
    assert [each for each in found if each.startswith(tuple("=+-@\t\r\n"))] == []
