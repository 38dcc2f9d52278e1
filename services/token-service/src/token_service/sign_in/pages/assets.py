"""What the pages load: a stylesheet, a script that only adds comfort, and a stylesheet for an application's colour."""

import re
from pathlib import Path
from typing import Final

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from identity_common.colors import contrast, mixed
from identity_common.pages.assets import HEADERS, Asset, asset_route
from identity_common.pages.design import DESIGN

_HERE: Final = Path(__file__).parent
_ACCENT: Final = "/sign-in/accent/"

_WHITE: Final = "#ffffff"
_DARK_CARD: Final = "#1c212a"
_DARK_TEXT: Final = "#10182b"
_LEGIBLE: Final = 4.5  # WCAG 2.2 section 1.4.3


STYLE: Final = Asset("/sign-in/style.css", "text/css", DESIGN + (_HERE / "style.css").read_bytes())
SCRIPT: Final = Asset("/sign-in/script.js", "text/javascript", (_HERE / "script.js").read_bytes())


def accent_address(color: str) -> str:
    """Return the address of the stylesheet that applies a colour, ``#rrggbb``."""
    return f"{_ACCENT}{color.removeprefix('#').lower()}"


def accent_style(color: str) -> str:
    """Return the stylesheet that applies a colour.

    On the light card it is used as it is; on the dark one it is mixed with white until it can be read.
    """
    share = next(share for share in range(0, 101, 5) if _is_legible(mixed(color, _WHITE, share)))
    light, dark = _scheme(color, _WHITE), _scheme(mixed(color, _WHITE, share), _DARK_TEXT)
    return f"{light}@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def _is_legible(color: str) -> bool:
    return min(contrast(color, _DARK_CARD), contrast(color, _DARK_TEXT)) >= _LEGIBLE


def _scheme(color: str, text: str) -> str:
    return f":root {{ --accent: {color}; --accent-text: {text}; }}\n"


def asset_routes() -> list[HTTPRouteHandler]:
    """Return the routes of the assets."""

    @get(f"{_ACCENT}{{color:str}}", include_in_schema=False, sync_to_thread=False)
    def accent(color: FromPath[str]) -> Response[bytes]:
        if re.fullmatch("[0-9a-f]{6}", color) is None:
            raise NotFoundException
        return Response(accent_style(f"#{color}").encode(), media_type="text/css", headers=HEADERS)

    return [asset_route(STYLE), asset_route(SCRIPT), accent]
