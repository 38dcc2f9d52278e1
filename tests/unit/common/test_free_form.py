"""Free-form objects as they are stored."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from identity_common.fields import free_form_text, is_too_large
from tests.support.lengths import length

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=length(short=30, long=1_000))
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=5))
def test_an_object_is_stored_unchanged(value: dict[str, Any]) -> None:
    assert json.loads(free_form_text(value)) == value


def test_an_absent_object_is_stored_as_an_empty_one() -> None:
    assert free_form_text(None) == "{}"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 40))
def test_the_limit_counts_bytes(text: str, limit: int) -> None:
    assert is_too_large(text, max_bytes=limit) is (len(text.encode()) > limit)
