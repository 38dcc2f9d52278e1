"""``Identity-Revision``: which headers are read and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.revisions import SOURCES, MalformedRevisionError, format_revisions, parse_revisions

REVISIONS = st.integers(min_value=0, max_value=10**18 - 1)


@given(st.dictionaries(st.sampled_from(sorted(SOURCES)), REVISIONS, min_size=1))
def test_formatted_revisions_are_parsed_back(revisions: dict[str, int]) -> None:
    assert parse_revisions([format_revisions(revisions)]) == revisions


@given(st.lists(st.tuples(st.sampled_from(sorted(SOURCES)), REVISIONS), min_size=1, max_size=20), st.data())
def test_the_highest_of_each_source_counts_over_all_lines(items: list[tuple[str, int]], data: st.DataObject) -> None:
    """RFC 9110 section 5.3: several lines are one list."""
    cut = data.draw(st.integers(min_value=1, max_value=len(items)))
    texts = [f"{source}:{revision}" for source, revision in items]
    lines = [", ".join(part) for part in (texts[:cut], texts[cut:]) if part]

    expected = {source: max(revision for each, revision in items if each == source) for source, _ in items}
    assert parse_revisions(lines) == expected


@pytest.mark.parametrize(
    ("lines", "revisions"),
    [
        ([], {}),
        (["management:0"], {"management": 0}),
        (["management:97"], {"management": 97}),
        (["management:97, template:184"], {"management": 97, "template": 184}),
        (["template:184,management:97"], {"management": 97, "template": 184}),
        (["\tmanagement:97 ,\ttemplate:184 "], {"management": 97, "template": 184}),
        (["management:97, management:3"], {"management": 97}),
        (["management:999999999999999999"], {"management": 10**18 - 1}),
    ],
)
def test_well_formed_headers(lines: list[str], revisions: dict[str, int]) -> None:
    assert parse_revisions(lines) == revisions


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        ",",
        "management",
        "management:",
        "management: 97",
        "management:97,",
        ",management:97",
        "management:97 template:184",
        "management:-1",
        "management:+1",
        "management:01",
        "management:1.0",
        "management:1e3",
        "management:0x1",
        "management:\u0661",
        "management:1000000000000000000",
        "management:" + "9" * 2**16,
        "Management:97",
        "MANAGEMENT:97",
        "token:1",
        "other:1",
        "management:97;template:1",
        "management:97\n",
        "management:97, x",
        "*",
        "x" * 2**16,
    ],
)
def test_anything_else_is_refused_and_not_ignored(line: str) -> None:
    """An unknown source or number is never dropped silently; also beside a good one."""
    for lines in ([line], ["management:1", line], [line, "template:1"]):
        with pytest.raises(MalformedRevisionError):
            parse_revisions(lines)


@given(st.text())
def test_any_text_is_revisions_or_malformed(text: str) -> None:
    try:
        revisions = parse_revisions([text])
    except MalformedRevisionError:
        return
    assert revisions
    assert revisions.keys() <= SOURCES


@pytest.mark.parametrize("count", [2**8, 2**16, 2**16 + 1])
def test_very_many_items_are_all_read(count: int) -> None:
    """CVE-2024-27101: the last one counts like the first."""
    header = ",".join(["management:1"] * (count - 1) + ["management:2"])

    assert parse_revisions([header]) == {"management": 2}
