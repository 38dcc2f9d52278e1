"""How the console shows entries of the audit trail in a table."""

from __future__ import annotations

import re

import pytest

from console.forms import Form
from console.rendering import Look, Pages
from stead.manage.lists import ListPage
from stead.models import AuditEntry
from tests.unit.console.test_look import FRAME

ENTRIES = [
    AuditEntry(id="1", occurred_at=1, key="token.refused", outcome="failure", reason="invalid_client", count=3),
    AuditEntry(id="2", occurred_at=1, key="token.refused", outcome="failure", reason="invalid_client"),
]


def outcomes(html: str) -> list[str]:
    rows = re.findall(r"<tr><td.*?</tr>", html, re.DOTALL)
    cells = [re.findall(r"<td.*?</td>", row, re.DOTALL)[2] for row in rows]
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]


@pytest.mark.parametrize("table", ["audit trail", "history"])
def test_an_entry_says_how_many_refusals_it_stands_for(table: str) -> None:
    pages = Pages(Look("Stead"))
    if table == "history":
        parts = pages._environments["en"].get_template("parts.html")
        html = str(parts.module.history(ENTRIES))  # type: ignore[attr-defined]
    else:
        found = ListPage(ENTRIES, total=None, following=None)
        html = str(pages.render("audit/list.html", "en", **FRAME, form=Form(), given={}, found=found).content)
    assert outcomes(html) == ["failure 3 times invalid_client", "failure invalid_client"]
