"""``/api/organization-template/affected-members``."""

from typing import Any, Final

from litestar import Controller, post
from litestar.di import NamedDependency, Provide
from litestar.params import JSONBody
from litestar.response import Stream

from identity_common.access.callers import Caller
from identity_common.access.management_api import admitted_caller
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import PUBLISHES_NOTHING, Filter, documented
from identity_common.http.pagination import parse_query
from identity_common.spreadsheets import CSV
from stead.event_types import MemberType
from template_service.affected_members.rules import AffectedMembers
from template_service.affected_members.service import TemplatePreview
from template_service.document.rules import TemplateDocument

_DEPENDENCIES: Final = {"caller": Provide(admitted_caller, sync_to_thread=False)}
_NAMES: Final[dict[MemberType, str]] = {"user": "users:read", "application": "applications:read"}
"""The scope for seeing the names of each kind of members."""

_DEFAULT_LIMIT: Final = 50
_MAX_LIMIT: Final = 100
_LIMIT: Final = Filter("limit", f"Members at most; {_DEFAULT_LIMIT} by default.", bounds=(1, _MAX_LIMIT))
_BODY: Final[dict[str, Any]] = {
    "permissions": [{"name": "invite:member", "description": "May invite members"}],
    "roles": [
        {
            "name": "administrator",
            "description": "Runs an organization",
            "type": "User",
            "permissions": ["invite:member"],
            "scopes": [],
        }
    ],
}
_EXAMPLE: Final[dict[str, Any]] = {
    "members": [
        {
            "type": "user",
            "id": "8m4b7n1c5z9l",
            "name": "Alice Archer",
            "organization": {"id": "c5z9l3jrx2kq", "name": "Example Ltd"},
            "gaining": [{"name": "invite:member"}],
            "losing": [{"name": "orders:read", "resource": "https://api.example.com"}],
        }
    ],
    "hasMore": False,
}
_TABLE: Final = (
    "organization,organizationId,memberType,member,memberId,change,permission,resource\r\n"
    "Example Ltd,c5z9l3jrx2kq,user,Alice Archer,8m4b7n1c5z9l,gains,invite:member,\r\n"
)


class AffectedMembersController(Controller):
    """The members that a template would affect."""

    path = "/organization-template/affected-members"
    tags = ("Organization template",)
    dependencies = _DEPENDENCIES

    @post(
        "/",
        status_code=200,
        operation_id="ListAffectedMembers",
        summary="List the members that a template would affect",
        opt=documented(body_example=_BODY, example=_EXAMPLE, filters=(_LIMIT,)) | PUBLISHES_NOTHING,
    )
    async def list_members(
        self,
        request: JsonRequest,
        data: JSONBody[TemplateDocument],
        caller: NamedDependency[Caller],
        template_preview: NamedDependency[TemplatePreview],
    ) -> AffectedMembers:
        """Return who would gain or lose which permissions if the document replaced the template; change nothing.

        A document that cannot be applied is refused, as it is by `PUT`. Users have a name for callers with
        `users:read`, applications for those with `applications:read`.
        """
        given = dict(parse_query(request.scope["query_string"]))
        limit = int(given.get(_LIMIT.name, _DEFAULT_LIMIT))
        return await template_preview.first(data, limit=limit, named=_named(caller))

    @post(
        "/export",
        status_code=200,
        operation_id="ExportAffectedMembers",
        summary="Export the members that a template would affect",
        opt=documented(answer=str, media_type=CSV, body_example=_BODY, example=_TABLE) | PUBLISHES_NOTHING,
    )
    async def export_members(
        self,
        data: JSONBody[TemplateDocument],
        caller: NamedDependency[Caller],
        template_preview: NamedDependency[TemplatePreview],
    ) -> Stream:
        """Stream all members that would gain or lose permissions as a table (RFC 4180), with a row for each permission.

        Text that begins like a formula has an apostrophe before it. Names are shown as in the list.
        """
        return Stream(await template_preview.export(data, named=_named(caller)), media_type=CSV)


def _named(caller: Caller) -> frozenset[MemberType]:
    """Return the kinds of members whose names a caller may see."""
    return frozenset(kind for kind, scope in _NAMES.items() if caller.may(scope))
