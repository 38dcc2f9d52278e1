"""``/api/search``."""

from typing import Final

from litestar import Controller, get
from litestar.di import NamedDependency, Provide

from identity_common.access.callers import Caller
from identity_common.access.management_api import admitted_caller
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.http.pagination import parse_query
from identity_common.names import MAX_NAME_CHARACTERS
from management_service.search.rules import readable_groups, searched_text
from management_service.search.service import Search, SearchAnswer

_DEPENDENCIES: Final = {"caller": Provide(admitted_caller, sync_to_thread=False)}

_DEFAULT_LIMIT: Final = 5
_MAX_LIMIT: Final = 20
_FILTERS: Final = (
    Filter(
        "q",
        "The text to search for: words or their beginnings, or an id; required.",
        max_length=MAX_NAME_CHARACTERS,
    ),
    Filter("limit", f"Results per group; {_DEFAULT_LIMIT} by default.", bounds=(1, _MAX_LIMIT)),
)
_EXAMPLE: Final = {
    "groups": [
        {
            "name": "users",
            "results": [{"type": "user", "id": "8m4b7n1c5z9l", "name": "Alice Müller", "detail": "alice@example.com"}],
            "hasMore": False,
        },
    ],
    "incomplete": [],
}


class SearchController(Controller):
    """The search for everything."""

    path = "/search"
    tags = ("Search",)
    dependencies = _DEPENDENCIES

    @get(
        "/",
        operation_id="Search",
        summary="Search everything",
        opt=documented(example=_EXAMPLE, filters=_FILTERS, refuses=(422,)),
    )
    async def search(
        self, request: JsonRequest, caller: NamedDependency[Caller], search: NamedDependency[Search]
    ) -> SearchAnswer:
        """Find objects by words and by ids, in groups: those that the caller may read.

        Users are found by name, user name, e-mail address and telephone number; organizations, applications, roles and
        permissions by name and description, resources by name and indicator; impersonations by ticket and reason. Each
        word of q must begin a word of the object, regardless of case and accents. Ids find objects of every kind and
        entries of the audit trail; the id of a request finds its entries, if it has at least 6 characters and a digit.

        ``permissions`` are the scopes of API resources. ``incomplete`` has the groups that did not answer in time: the
        others are complete without them. Impersonations and entries are found as soon as the audit trail has them.
        """
        given = dict(parse_query(request.scope["query_string"]))
        text, limit = searched_text(given.get("q")), int(given.get("limit", _DEFAULT_LIMIT))
        return await search.search(text, readable_groups(caller.scopes), limit=limit)
