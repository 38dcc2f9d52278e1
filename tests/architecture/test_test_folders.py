"""Tests with a marker are where the target of that marker collects them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKERS = ("clients", "servers", "deployed", "kubernetes", "manifests", "observed")
COLLECTED = re.compile(rf"-m '?({'|'.join(MARKERS)})\b.*?((?: tests/\S+)+)$", re.MULTILINE)


def test_every_target_collects_all_tests_of_its_marker() -> None:
    collected: dict[str, set[str]] = {}
    for marker, folders in COLLECTED.findall((ROOT / "Makefile").read_text()):
        collected.setdefault(marker, set()).update(folders.split())
    assert collected.keys() == set(MARKERS)
    outside = [
        (marker, str(path.relative_to(ROOT)))
        for path in (ROOT / "tests").rglob("test_*.py")
        for marker in set(re.findall(r"pytest\.mark\.(\w+)", path.read_text())) & collected.keys()
        if not any(path.is_relative_to(ROOT / folder) for folder in collected[marker])
    ]
    assert outside == []
