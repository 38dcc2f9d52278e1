"""``Prefer`` (RFC 7240): how long a client would wait for its answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template_service.member_permissions.preferences import preferred_wait


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([], None),
        (["wait=20"], 20),
        (["WAIT=20"], 20),
        (["Wait = 20"], 20),
        (['wait="20"'], 20),
        (["wait=20;more;and=that"], 20),
        (["respond-async, wait=10"], 10),
        (["respond-async", "wait=10"], 10),
        (["handling=lenient; x=1, wait=10, respond-async"], 10),
        (['foo="a, wait=5", wait=6'], 6),
        (['foo="a\\", wait=5", wait=6'], 6),
        (["wait=0"], 0),
        (["wait=007"], 7),
        (["wait=999999999"], 999999999),
    ],
)
def test_section_2_a_preference_stands_among_others_with_or_without_quotes(
    lines: list[str], seconds: int | None
) -> None:
    """Section 2: names without regard to case, lines of one header joined, parameters; section 4.3: delta-seconds."""
    assert preferred_wait(lines) == seconds


@pytest.mark.parametrize("lines", [["wait=10, wait=20"], ["wait=10", "wait=20"], ['wait="10"; a=b, Wait=20']])
def test_section_2_the_first_of_a_repeated_preference_counts(lines: list[str]) -> None:
    assert preferred_wait(lines) == 10


@pytest.mark.parametrize(
    "line",
    ["wait", "wait=", 'wait=""', "wait=x", "wait=-1", "wait=1.5", "wait=9999999999", "wait=1 2", "waiting=20", "=20",
     "wait=x, wait=20", "x" * 2000 + ", wait=20", 'wait="20', "wait=\u0661\u0660"],
)  # fmt: skip
def test_section_2_a_malformed_preference_is_ignored(line: str) -> None:
    assert preferred_wait([line]) is None


@given(st.lists(st.text(max_size=50), max_size=5))
def test_no_preference_causes_an_error(lines: list[str]) -> None:
    seconds = preferred_wait(lines)
    assert seconds is None or seconds >= 0
