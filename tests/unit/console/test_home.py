"""When a key needs attention on the console's first page."""

from __future__ import annotations

import pytest

from console.areas.home import Attention, old_keys

DAY_MS = 24 * 3_600_000
NOW = 200 * DAY_MS


@pytest.mark.parametrize(("age", "days"), [(0, []), (91 * DAY_MS - 1, []), (91 * DAY_MS, [91]), (100 * DAY_MS, [100])])
def test_a_key_that_has_signed_for_more_than_ninety_days_needs_attention(age: int, days: list[int]) -> None:
    keys = [
        {"createdAt": NOW, "status": "Next"},
        {"createdAt": NOW - age, "status": "Current"},
        {"createdAt": 0, "status": "Previous"},
    ]
    assert old_keys("feed-key", keys, NOW) == [Attention("feed-key", each) for each in days]
