"""Every file, test and target that CONTRIBUTING.md and tests/README.md name exists."""

import ast
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "tests/README.md")
SKIPPED = {".venv", ".git", ".local", "node_modules", "__pycache__", "build"}
FILE = re.compile(r"\.?\w[\w./<>{},…-]*(?:/[\w<>-]*|\.(?:py|md|json|lock|toml|yaml))|…/[\w/<>.]+")
PLACEHOLDER = re.compile(r"<\w+>|N{4}|…")


def texts(page: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", (ROOT / page).read_text())


@pytest.fixture(scope="module")
def paths() -> list[str]:
    """Return all files and folders of the tree."""
    found, pending = [], [ROOT]
    while pending:
        inside = [each for each in pending.pop().iterdir() if each.name not in SKIPPED]
        found += [f"/{each.relative_to(ROOT)}" for each in inside]
        pending += [each for each in inside if each.is_dir()]
    return found


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """Return the names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def each_of_braces(name: str) -> list[str]:
    """Expand the first pair of braces, as a shell does."""
    if braces := re.search(r"\{(.*?)\}", name):
        return [name.replace(braces[0], each) for each in braces[1].split(",")]
    return [name]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_exists(page: str, paths: list[str]) -> None:
    named = [each for text in texts(page) if FILE.fullmatch(text) for each in each_of_braces(text)]
    assert len(named) > 10
    patterns = {name: "*/" + PLACEHOLDER.sub("*", name).rstrip("/") for name in named}
    assert [name for name, pattern in patterns.items() if not any(fnmatchcase(path, pattern) for path in paths)] == []


def test_every_test_exists(tests: set[str]) -> None:
    named = [text for page in PAGES for text in texts(page) if re.fullmatch(r"test_\w+…?", text)]
    assert len(named) > 5
    missing = [
        name
        for name in named
        if not (any(test.startswith(name[:-1]) for test in tests) if name.endswith("…") else name in tests)
    ]
    assert missing == []


def targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):.*##\+? ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_make_help_lists_every_target() -> None:
    command = ["make", "--no-print-directory", "help"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    shown = [line.split()[0] for line in printed.splitlines() if line.startswith("  ")]
    assert sorted(shown) == sorted(targets())
    everyday = {"run", "up", "down", "demo", "example", "test", "check", "bench", "images", "help"}
    assert set(shown[: len(everyday)]) == everyday


def test_every_target_exists_and_those_of_tests_have_a_line() -> None:
    named = {text.split()[1] for page in PAGES for text in texts(page) if re.match(r"make [a-z]", text)}
    assert named - targets() == set()
    lines = set(re.findall(r"^\| `make ([a-z0-9-]+)` \|", (ROOT / "tests/README.md").read_text(), re.MULTILINE))
    assert lines == {"k8s-check", "mutants", "screenshots"} | {each for each in targets() if each.startswith("test")}
