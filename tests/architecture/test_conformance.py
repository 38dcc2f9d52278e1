"""docs/conformance.md: every row names tests that exist, or says why there is none."""

from __future__ import annotations

import re

import pytest

from tests.support.named_tests import ROOT, exists

PAGE = (ROOT / "docs/conformance.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
REQUIREMENTS = [row for row in ROWS if row[0] != "section"]
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE)))
LEVELS = {"MUST", "MUST NOT", "REQUIRED", "SHOULD", "SHOULD NOT", "RECOMMENDED", "MAY", "stated"}


@pytest.mark.parametrize("named", NAMED)
def test_every_named_test_exists(named: str) -> None:
    assert exists(named)


def test_every_requirement_has_its_section_and_level_and_a_test_or_a_reason() -> None:
    assert len(REQUIREMENTS) > 80
    assert {len(row) for row in REQUIREMENTS} == {4}
    assert not [row for row in REQUIREMENTS if not re.fullmatch(r"[1-9]\d*(\.\d)*", row[0]) or row[1] not in LEVELS]
    assert not [row for row in REQUIREMENTS if not row[3].startswith("`tests/") and not row[3].endswith(".")]
