"""What the pages load: a stylesheet, and a script that only adds comfort."""

from pathlib import Path
from typing import Final

from identity_common.pages.assets import Asset
from identity_common.pages.design import DESIGN

_HERE: Final = Path(__file__).parent

STYLE: Final = Asset("/console/style.css", "text/css", DESIGN + (_HERE / "style.css").read_bytes())
SCRIPT: Final = Asset("/console/script.js", "text/javascript", (_HERE / "script.js").read_bytes())
