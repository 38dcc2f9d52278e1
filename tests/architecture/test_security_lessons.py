"""docs/security-lessons.md names tests that exist and well-formed public ids."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, exists

PAGE = (ROOT / "docs/security-lessons.md").read_text()
NAMED = sorted(set(re.findall(r"tests/[^\s`|<]+", PAGE)))
IDS = set(re.findall(r"\b(?:CVE|GHSA)[^\s|,]*", PAGE))
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]

CVE = re.compile(r"CVE-(?:199\d|20\d\d)-\d{4,}")
GHSA = re.compile(r"GHSA(?:-[23456789cfghjmpqrvwx]{4}){3}")


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    assert exists(named)


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
