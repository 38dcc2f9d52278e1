"""Assets of the pages: a stylesheet, an icon, scripts, and an application's colour."""

import re
from pathlib import Path
from typing import Final

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from identity_common.pages.assets import HEADERS, Asset, asset_route, icon
from identity_common.pages.design import DESIGN, accent_style

_HERE: Final = Path(__file__).parent
_ACCENT: Final = "/sign-in/accent/"

STYLE: Final = Asset("/sign-in/style.css", "text/css", DESIGN + (_HERE / "style.css").read_bytes())
ICON: Final = icon("/sign-in/icon.svg")
SCRIPT: Final = Asset("/sign-in/script.js", "text/javascript", (_HERE / "script.js").read_bytes())
PASSKEY_SCRIPT: Final = Asset("/sign-in/passkey.js", "text/javascript", (_HERE / "passkey.js").read_bytes())


def accent_address(color: str) -> str:
    """Return the address of the stylesheet that applies a colour, ``#rrggbb``."""
    return f"{_ACCENT}{color.removeprefix('#').lower()}"


def asset_routes() -> list[HTTPRouteHandler]:
    """Return the routes of the assets."""

    @get(f"{_ACCENT}{{color:str}}", include_in_schema=False, sync_to_thread=False)
    def accent(color: FromPath[str]) -> Response[bytes]:
        if re.fullmatch("[0-9a-f]{6}", color) is None:
            raise NotFoundException
        return Response(accent_style(f"#{color}").encode(), media_type="text/css", headers=HEADERS)

    return [asset_route(STYLE), asset_route(ICON), asset_route(SCRIPT), asset_route(PASSKEY_SCRIPT), accent]
