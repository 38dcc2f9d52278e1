"""docs/security-lessons.md names tests that exist and well-formed public ids."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security-lessons.md").read_text()
NAMED = sorted(set(re.findall(r"tests/[^\s`|<]+", PAGE)))
IDS = set(re.findall(r"\b(?:CVE|GHSA)[^\s|,]*", PAGE))
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]

CVE = re.compile(r"CVE-(?:199\d|20\d\d)-\d{4,}")
GHSA = re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")


def names_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the names of the tests among these statements, those of classes as ``Class::test``."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            names |= names_in(statement.body, f"{prefix}{statement.name}::")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test_"):
            names.add(f"{prefix}{statement.name}")
    return names


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert name in names_in(ast.parse((ROOT / path).read_text()).body)


def test_every_public_id_is_well_formed() -> None:
    assert len(IDS) > 30
    assert not [found for found in IDS if not CVE.fullmatch(found) and not GHSA.fullmatch(found)]


def test_every_lesson_has_an_id_or_none_and_a_test_or_a_reason() -> None:
    lessons = [row for row in ROWS if row[1] != "public id"]
    assert {len(row) for row in lessons} == {3, 4}
    assert not [row for row in lessons if row[1] != "none" and set(row[1].split(", ")) - IDS]
    assert not [row for row in lessons if len(row) == 4 and not row[3].startswith("`tests/")]


def test_security_md_links_to_the_page() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    assert "](docs/security-lessons.md)" in security
    assert "## Reporting a vulnerability" in security
