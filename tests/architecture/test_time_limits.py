"""How long a test may take: its own limit, or that of its module, or one by its marker."""

from pathlib import Path

import pytest

from tests.support.lengths import length


def unlimited() -> None:
    """Stand for the body of a collected test."""


@pytest.mark.parametrize(
    ("of_the_module", "of_the_test", "limit_s"),
    [
        ([], ["heavy"], 300),
        (["heavy", "slow"], [], length(short=600, long=3600)),
        ([], ["slow", 7], 7),
        (["slow", 7], [], 7),
        (["heavy", 7], ["slow"], 7),
        ([7], ["heavy", 8], 8),
        ([], [], None),
    ],
)
def test_a_limit_that_is_named_stays(
    of_the_module: list[str | int], of_the_test: list[str | int], limit_s: int | None, request: pytest.FixtureRequest
) -> None:
    module = pytest.Module.from_parent(request.session, path=Path(__file__))
    item = pytest.Function.from_parent(module, name=unlimited.__name__, callobj=unlimited)
    for node, marks in ((module, of_the_module), (item, of_the_test)):
        for mark in marks:
            node.add_marker(mark if isinstance(mark, str) else pytest.mark.timeout(mark))
    request.config.hook.pytest_itemcollected(item=item)
    closest = item.get_closest_marker("timeout")
    assert (closest and closest.args[0]) == limit_s
