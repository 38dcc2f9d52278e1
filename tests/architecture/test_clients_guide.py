"""Two guides name every client and every provider that is tested, and link to tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "docs/guides" / name for name in ("clients.md", "beside-your-provider.md")]
LINKED = {
    (guide.parent / link).resolve() for guide in GUIDES for link in re.findall(r"\]\((\.\./[^)#]+)", guide.read_text())
}
HELPERS = {"conversation", "served"}
PROGRAMS = {
    program
    for folder, ending in (("javascript", "mjs"), ("python", "py"))
    for program in (ROOT / "tests/clients" / folder).glob(f"*.{ending}")
    if program.stem not in HELPERS
}


def test_every_linked_test_exists() -> None:
    assert not {path for path in LINKED if not path.is_file()}


def test_every_program_is_in_a_guide_or_in_a_test_that_it_links_to() -> None:
    tests = "".join(path.read_text() for path in LINKED if path.name.startswith("test_"))
    assert len(PROGRAMS) > 8
    assert not {program.name for program in PROGRAMS - LINKED if program.name not in tests}
