"""Words of a search that few texts have."""

from __future__ import annotations

import pytest

from identity_common.words import has_beginnings, rare_words_query


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("cannot see order 2075", "'2075':*"),
        ("TCK-2075 a1b2c3", "'a1b2c3':* & '2075':*"),
        ("order 12", None),
        ("no number", None),
        ("030 123 456", None),
        ("2075", "'2075':*"),
        ("--", None),
        ("a b c d e f g hh ii 123'456", "'123':* & '456':*"),
    ],
)
def test_numbers_of_three_digits_are_rare(text: str, query: str | None) -> None:
    assert rare_words_query(text) == query


@pytest.mark.parametrize(
    ("beginnings", "expected"),
    [
        ("crème 2077", True),
        ("CREME tck-20", True),
        ("ust 2077", False),
        ("customer 2077 lost", False),
        ("", True),
        ("a b c d e f g h customer", False),
    ],
)
def test_each_beginning_begins_a_word(beginnings: str, expected: bool) -> None:
    assert has_beginnings("TCK-2077 The customer's Crème", beginnings) is expected
