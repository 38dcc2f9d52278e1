"""The tokens of the design that all pages share: colours in the light and the dark scheme."""

from pathlib import Path
from typing import Final

DESIGN: Final = (Path(__file__).parent / "design.css").read_bytes()
"""The first part of every stylesheet."""
