"""How deep a JSON text is nested, before the parser recurses into it: brackets in strings do not count."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.failures import Invalid
from identity_common.http.json_body import MAX_DEPTH, parse_json

STRINGS = st.sampled_from(['""', '"["', '"{}"', '"]]"', '"\\""', '"\\\\"', '"[\\"["', '"\\u005b\\n"', '"ä{"'])


@given(st.lists(STRINGS, max_size=MAX_DEPTH + 3), st.integers(MAX_DEPTH - 2, MAX_DEPTH + 2))
def test_only_brackets_outside_of_strings_are_counted(strings: list[str], depth: int) -> None:
    inner = "[" * depth + ",".join(strings) + "]" * depth
    if depth > MAX_DEPTH:
        with pytest.raises(Invalid) as refused:
            parse_json(inner.encode())
        assert refused.value.message
    else:
        assert parse_json(inner.encode()) == json.loads(inner)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '["\\' + "[" * 100_000,
        '[""' + "[" * 100_000,
        '["\\\\"' + "[" * 100_000,
        '\\"' + "[" * 100_000,
        '["' + '\\"[' * 100_000,
    ],
)
def test_a_text_that_is_cut_off_is_refused_however_deep(text: str) -> None:
    with pytest.raises(Invalid):
        parse_json(text.encode())
