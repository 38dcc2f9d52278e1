"""The geometry of charts that are drawn on the server. Pure."""

from collections.abc import Sequence
from typing import Final

import msgspec

WIDTH: Final = 720
HEIGHT: Final = 160

_GAP: Final = 0.2
_STEPS: Final = (1, 2, 5)


class Bar(msgspec.Struct, frozen=True):
    """One rectangle, in units of the drawing.

    Attributes:
        series: Which of the series it belongs to, from 0.
        x: Left edge.
        y: Upper edge.
        width: Width.
        height: Height.
    """

    series: int
    x: float
    y: float
    width: float
    height: float


class Chart(msgspec.Struct, frozen=True):
    """Stacked columns, ``WIDTH`` by ``HEIGHT``.

    Attributes:
        columns: The bars of each column, lowest first; without those that are 0.
        top: The value at the upper edge: 1, 2 or 5 times a power of ten.
    """

    columns: list[list[Bar]]
    top: int


def stacked_columns(columns: Sequence[Sequence[int]]) -> Chart:
    """Return the drawing of columns, each of which has the values of all series, lowest first."""
    top = _round_number(max((sum(values) for values in columns), default=0))
    step = WIDTH / max(len(columns), 1)
    drawn = []
    for place, values in enumerate(columns):
        bars, level = [], float(HEIGHT)
        for series, value in enumerate(values):
            height = value / top * HEIGHT
            level -= height
            if value:
                x, width = (place + _GAP / 2) * step, step * (1 - _GAP)
                bars.append(Bar(series, *(round(each, 2) for each in (x, level, width, height))))
        drawn.append(bars)
    return Chart(drawn, top)


def _round_number(greatest: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, … that is not below a number."""
    power = 1
    while True:
        for step in _STEPS:
            if step * power >= greatest:
                return step * power
        power *= 10
