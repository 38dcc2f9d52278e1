"""The languages of the pages: one file each, ``catalogues/<tag>.po``; the README of the service says how to add one."""

from pathlib import Path
from typing import Final

from identity_common.pages.languages import Languages

CATALOGUES: Final = Path(__file__).parent / "catalogues"
LANGUAGES: Final = Languages(CATALOGUES)
