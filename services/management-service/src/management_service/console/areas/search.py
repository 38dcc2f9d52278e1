"""``/console/search``: one field for everything; an id redirects to its page."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from litestar import Response

from management_service.console.console import Area
from management_service.console.rendering import redirect
from management_service.console.requests import Visit
from stead.errors import InvalidId, NotFound

AREA: Final = Area()

_PAGE_SIZE: Final = 20


@AREA.page("/search")
async def search(visit: Visit) -> Response[str]:
    text = visit.parameter("q")[:128]
    if not text:
        return await visit.page("search.html", area="", q="", users=None, entries=())
    for path, get in (
        ("users", visit.api.users.get),
        ("impersonations", visit.api.impersonations.get),
        ("audit", visit.api.logs.get),
        ("organizations", visit.api.organizations.get),
        ("applications", visit.api.applications.get),
        ("resources", visit.api.resources.get),
        ("roles", visit.api.roles.get),
    ):
        if await _exists(get, text):
            return redirect(f"/console/{path}/{text}")
    users, entries = await asyncio.gather(
        visit.api.users.list(search=text, page_size=_PAGE_SIZE).page(),
        visit.api.logs.list(subject_token_id=text, page_size=_PAGE_SIZE).page(),
    )
    return await visit.page("search.html", area="", q=text, users=users, entries=entries.items)


async def _exists(get: Callable[[str], Awaitable[object]], text: str) -> bool:
    try:
        await get(text)
    except (NotFound, InvalidId):
        return False
    return True
