"""Contrast of colours (WCAG 2.2, relative luminance and contrast ratio), and their mixtures."""

import pytest

from identity_common.colors import contrast, mixed


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [
        ("#000000", "#ffffff", 21),
        ("#FFFFFF", "#000000", 21),
        ("#777777", "#ffffff", 4.48),
        ("#767676", "#ffffff", 4.54),
        ("#0000ff", "#ffffff", 8.59),
        ("#ff0000", "#ffffff", 4.0),
        ("#123456", "#123456", 1),
    ],
)
def test_the_ratio_is_that_of_wcag(first: str, second: str, ratio: float) -> None:
    assert round(contrast(first, second), 2) == ratio


def test_colours_mix_by_share() -> None:
    assert [mixed("#000080", "#ffffff", share) for share in (0, 50, 100)] == ["#000080", "#8080c0", "#ffffff"]
