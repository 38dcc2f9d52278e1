"""The checks of the verifier process: which scopes an address requires."""

from __future__ import annotations

import pytest

from verifier.checks import check_at


@pytest.mark.parametrize(
    ("path", "scopes"),
    [
        (b"/check/-", set()),
        (b"/check/-/~/orders/1", set()),
        (b"/check/-/~", set()),
        (b"/check/a/b:50%", None),  # of a proxy that has decoded a scope
        (b"/check/a/~b", None),
        (b"/check/read:orders/~/../-/x", {"read:orders"}),
        (b"/check/read:orders/~/%2e%2e//check/-", {"read:orders"}),
        (b"/check/a%20b", {"a", "b"}),
        (b"/check/-%20-", {"-"}),
        (b"/check/a%252Fb", {"a%2Fb"}),
        (b"/check/-*", {"-*"}),
        (b"/check/", None),
        (b"/check", None),
        (b"/check//-", None),
        (b"//check/-", None),
        (b"/check/a%20", None),
        (b"/check/a%22", None),
        (b"/check/%C3%BC", None),
        (b"/check-in/-", None),
    ],
)
def test_the_scope_is_the_segment_after_the_check_whatever_follows(path: bytes, scopes: set[str] | None) -> None:
    check = check_at(path)
    assert (None if check is None else set(check.scopes)) == scopes
