"""Every field of every log call is on the allow-list."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from identity_common.failures import StoreUnavailable, TemporarilyUnavailable, log_fields
from identity_common.telemetry.logs import FIELDS

ROOT = Path(__file__).parents[2]
SOURCES = [*ROOT.glob("services/*/src/**/*.py"), *ROOT.glob("libs/common/src/**/*.py")]


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a module's logger, with its place."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                logger = node.func.value
                if isinstance(logger, ast.Name) and logger.id == "_log":
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


@pytest.mark.heavy
def test_no_log_call_names_a_field_that_would_be_dropped() -> None:
    calls = list(log_calls())
    assert len(calls) > 50
    known = FIELDS | {"exc_info"}
    named = [(place, keyword.arg or ast.unparse(keyword.value)) for place, call in calls for keyword in call.keywords]
    assert [(place, name) for place, name in named if name not in known and not name.startswith("log_fields(")] == []
    errors = (StoreUnavailable("redis", "ConnectionError"), TemporarilyUnavailable(why="loading"), OSError())
    assert {field for error in errors for field in log_fields(error)} <= known
