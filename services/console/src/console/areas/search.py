"""``/console/search``: one field for everything; an id redirects to its page."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from litestar import Response

from console.console import Area
from console.rendering import redirect
from console.requests import ConsoleRequest
from stead import AuditEntry
from stead.errors import InvalidId, NotFound

AREA: Final = Area()

_PAGE_SIZE: Final = 20


@AREA.page("/search")
async def search(request: ConsoleRequest) -> Response[str]:
    text = request.parameter("q")[:128]
    if not text:
        return await request.page("search.html", area="", q="", users=None, entries=())
    for path, get in (
        ("users", request.api.users.get),
        ("impersonations", request.api.impersonations.get),
        ("audit", request.api.logs.get),
        ("organizations", request.api.organizations.get),
        ("applications", request.api.applications.get),
        ("resources", request.api.resources.get),
        ("roles", request.api.roles.get),
    ):
        if request.may(f"/console/{path}") and await _exists(get, text):
            return redirect(f"/console/{path}/{text}")
    users = await request.api.users.list(search=text, page_size=_PAGE_SIZE).page()
    entries: Sequence[AuditEntry] = ()
    if request.may("/console/audit"):
        entries = (await request.api.logs.list(subject_token_id=text, page_size=_PAGE_SIZE).page()).items
    return await request.page("search.html", area="", q=text, users=users, entries=entries)


async def _exists(get: Callable[[str], Awaitable[object]], text: str) -> bool:
    try:
        await get(text)
    except (NotFound, InvalidId):
        return False
    return True
