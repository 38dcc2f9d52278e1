"""``/console/search``: one field for everything; an id redirects to its page."""

from typing import Final
from urllib.parse import urlencode

from litestar import Response

from console.areas.names import user_names
from console.console import Area
from console.rendering import redirect
from console.requests import HOME, ConsoleRequest
from stead.models import SearchResult

AREA: Final = Area()

_RESULTS: Final = 10
_LISTS: Final = {
    "users": "users",
    "organizations": "organizations",
    "applications": "applications",
    "resources": "resources",
    "roles": "roles",
    "organizationRoles": "template/roles",
    "organizationPermissions": "template/permissions",
}
"""The list that has the further results of a group: those of other groups cannot be searched."""
_AREAS: Final = _LISTS | {"permissions": "resources", "impersonations": "impersonations", "logs": "audit"}
_PAGES: Final = {
    "user": "users",
    "organization": "organizations",
    "application": "applications",
    "resource": "resources",
    "role": "roles",
    "organizationRole": "template/roles",
    "organizationPermission": "template/permissions",
    "impersonation": "impersonations",
    "log": "audit",
}


@AREA.page("/search")
async def search(request: ConsoleRequest) -> Response[str]:
    text = request.parameter("q")
    if not text:
        return await request.page("search.html", area="", q="", groups=(), incomplete=(), unseen=_unseen(request))
    answer = await request.api.search(text, limit=_RESULTS)
    results = [result for group in answer.groups for result in group.results]
    if results and results[0].id == text:
        return redirect(_address(request, results[0]))
    return await request.page(
        "search.html",
        area="",
        q=text,
        groups=answer.groups,
        incomplete=answer.incomplete,
        unseen=_unseen(request),
        addresses={(result.type, result.id): _address(request, result) for result in results},
        lists={group: f"{HOME}/{path}?{urlencode({'search': text})}" for group, path in _LISTS.items()},
        users=await user_names(request, [result.user_id for result in results]),
    )


def _unseen(request: ConsoleRequest) -> list[str]:
    """Return the groups that are left out, since the viewer may not see what is in them."""
    return [group for group, path in _AREAS.items() if not request.may(f"{HOME}/{path}")]


def _address(request: ConsoleRequest, result: SearchResult) -> str:
    """Return the address of the page of a result; a permission has one of its own for those who may change it."""
    if result.type == "permission":
        resource = f"{HOME}/resources/{result.resource_id}"
        return f"{resource}/scopes/{result.id}" if request.may(resource, changes=True) else resource
    return f"{HOME}/{_PAGES[result.type]}/{result.id}"
