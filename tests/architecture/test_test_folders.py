"""Tests with a marker are where the target of that marker collects them; what tests share is type-checked."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKERS = ("clients", "servers", "deployed", "kubernetes", "manifests", "observed")
COLLECTED = re.compile(rf"-m '?({'|'.join(MARKERS)})\b(?:.|\\\n)*?((?: tests/[\w/]+)+)\)?$", re.MULTILINE)


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


def test_the_fixtures_of_every_folder_are_type_checked() -> None:
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["modules"]
    there = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "tests").rglob("conftest.py")]
    assert sorted(checked) == sorted(".".join(path.parts) for path in there)
