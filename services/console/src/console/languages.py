"""The languages of the console: one file each, ``catalogues/<tag>.po``."""

from pathlib import Path
from typing import Final

from identity_common.pages.languages import Languages

CATALOGUES: Final = Path(__file__).parent / "catalogues"
LANGUAGES: Final = Languages(CATALOGUES)
