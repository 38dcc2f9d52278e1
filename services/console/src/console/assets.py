"""Assets of the pages: a stylesheet, an icon, and a script for progressive enhancement."""

from pathlib import Path
from typing import Final

from identity_common.pages.assets import Asset, icon
from identity_common.pages.design import DESIGN, accent_style

_HERE: Final = Path(__file__).parent
_STYLE: Final = DESIGN + (_HERE / "style.css").read_bytes()

ICON: Final = icon("/console/icon.svg")
SCRIPT: Final = Asset("/console/script.js", "text/javascript", (_HERE / "script.js").read_bytes())


def stylesheet(color: str) -> Asset:
    """Return the stylesheet with an accent colour, ``#rrggbb``; empty for the default."""
    return Asset("/console/style.css", "text/css", _STYLE + (accent_style(color).encode() if color else b""))
