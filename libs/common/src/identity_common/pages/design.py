"""The design tokens of all pages: colours in the light and the dark scheme, sizes of type, space and corners."""

from pathlib import Path
from typing import Final

from identity_common.colors import contrast, mixed

DESIGN: Final = (Path(__file__).parent / "design.css").read_bytes()
"""The first part of every stylesheet."""

LEGIBLE: Final = 4.5
"""Least contrast between text and background (WCAG 2.2 success criterion 1.4.3)."""

_WHITE: Final = "#ffffff"
_DARK_GROUND: Final = "#2c3237"  # the lightest one in the dark scheme
_DARK_TEXT: Final = "#0b1a1c"


def accent_style(color: str) -> str:
    """Return the stylesheet that replaces the accent colour with another one, ``#rrggbb``.

    In the light scheme it is used as it is; in the dark one it is mixed with white until it is legible.
    """
    share = next(share for share in range(0, 101, 5) if _is_legible(mixed(color, _WHITE, share)))
    light, dark = _scheme(color, _WHITE), _scheme(mixed(color, _WHITE, share), _DARK_TEXT)
    return f"{light}@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def _is_legible(color: str) -> bool:
    return min(contrast(color, _DARK_GROUND), contrast(color, _DARK_TEXT)) >= LEGIBLE


def _scheme(color: str, text: str) -> str:
    return f":root {{ --accent: {color}; --accent-text: {text}; }}\n"
