"""The drawing of stacked columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.charts import HEIGHT, WIDTH, stacked_columns

COLUMNS = st.lists(st.tuples(*[st.integers(0, 10**12)] * 3), max_size=30)


@given(COLUMNS)
def test_bars_stand_on_each_other_and_stay_within_the_drawing(columns: list[tuple[int, int, int]]) -> None:
    chart = stacked_columns(columns)
    assert len(chart.columns) == len(columns)
    for values, bars in zip(columns, chart.columns, strict=True):
        assert [bar.series for bar in bars] == [place for place, value in enumerate(values) if value]
        floor = float(HEIGHT)
        for bar in bars:
            assert bar.y + bar.height == pytest.approx(floor, abs=0.02)
            assert -0.01 <= bar.y <= HEIGHT
            assert 0 <= bar.x <= bar.x + bar.width <= WIDTH + 0.01
            assert bar.height == pytest.approx(values[bar.series] / chart.top * HEIGHT, abs=0.01)
            floor = bar.y


@pytest.mark.parametrize(
    ("greatest", "top"), [(0, 1), (1, 1), (2, 2), (3, 5), (5, 5), (6, 10), (11, 20), (200, 200), (201, 500)]
)
def test_the_scale_ends_at_a_round_number(greatest: int, top: int) -> None:
    assert stacked_columns([(greatest,)]).top == top
