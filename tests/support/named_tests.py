"""Tests that a document names: ``tests/…/test_….py::Class::test``."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def exists(named: str) -> bool:
    """Return whether there is such a test."""
    path, _, name = named.partition("::")
    return (ROOT / path).is_file() and name in _names_of(path)


@cache
def _names_of(path: str) -> set[str]:
    return _names_in(ast.parse((ROOT / path).read_text()).body)


def _names_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the names of the tests among these statements, those of classes as ``Class::test``."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            names |= _names_in(statement.body, f"{prefix}{statement.name}::")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name.startswith("test_"):
            names.add(f"{prefix}{statement.name}")
    return names
