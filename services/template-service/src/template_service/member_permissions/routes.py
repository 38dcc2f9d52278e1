"""``/api/organizations/{id}/users/{userId}/scopes`` and its twin for applications: 200, 304, or a wait for a change.

Raw ASGI routes: polls for permissions are the most frequent requests of this service, and answering one with 304 costs
less than the overhead of a framework's handler.
"""

import re
from collections.abc import Sequence
from typing import Final

from litestar.handlers import ASGIRouteHandler
from litestar.types import HTTPScope, Receive, Scope

from identity_common.access.management_api import AUTHORIZATION, require_storable_path
from identity_common.failures import AnyFailure, Issue, invalid_input
from identity_common.http.layers.cors import ANY_PAGE, Headers
from identity_common.http.openapi.declarations import Content, Documented, Operation, RequestHeader
from identity_common.http.query_parameters import require_declared
from identity_common.http.raw_routes import RawAnswer, read
from identity_common.revisions import HEADER as REVISION_HEADER
from identity_common.revisions import MalformedRevisionError, format_revisions, parse_revisions
from stead.event_types import MemberType
from template_service.member_permissions.access import ReadRequest
from template_service.member_permissions.preferences import preferred_wait
from template_service.member_permissions.service import MAX_WAIT_S, MemberPermissions
from template_service.member_permissions.store import Member
from template_service.permissions.routes import OrganizationPermissionAnswer, organization_permission_answer

_PATH: Final = "/api/organizations/{{organization_id:str}}/{kind}s/{{{kind}_id:str}}/scopes"
_KINDS: Final[tuple[tuple[MemberType, str], ...]] = (("user", "a user"), ("application", "an application"))
_READABLE_BY_ANY_PAGE: Final = re.compile("/api/organizations/[^/]+/users/[^/]+/scopes")
_IF_NONE_MATCH: Final = b"if-none-match"
_PREFER: Final = b"prefer"
_REVISION: Final = REVISION_HEADER.lower().encode()


def scopes_routes(permissions: MemberPermissions) -> Sequence[ASGIRouteHandler]:
    """Return the routes to the permissions of a user, and of an application, in an organization."""
    return [_scopes_route(permissions, kind, noun) for kind, noun in _KINDS]


def readable_by_any_page(request: HTTPScope, _: bytes | None) -> Headers | None:
    """Allow every origin to read a user's permissions: browser apps do so with the user's own token."""
    return ANY_PAGE if _READABLE_BY_ANY_PAGE.fullmatch(request["path"]) else None


def _scopes_route(permissions: MemberPermissions, kind: MemberType, noun: str) -> ASGIRouteHandler:
    operation = Operation(
        method="GET",
        operation_id=f"ListOrganization{kind.capitalize()}Scopes",
        summary=f"List the permissions of {noun} in an organization",
        description=f"List the organization permissions that {noun} holds in an organization, by name: the union over "
        f"its roles.\n\nOpen to the {kind} itself, with an organization token, and to callers of the Management API.",
        tags=("Organizations",),
        request_headers=(
            RequestHeader(
                "Prefer",
                f"wait, in seconds, at most {MAX_WAIT_S}: with If-None-Match, hold the response until it changes "
                "or the time is up (RFC 7240).",
                "wait=20",
            ),
            RequestHeader(REVISION_HEADER, "Respond from a state that includes these revisions.", "template:184"),
        ),
        answer=Content(list[OrganizationPermissionAnswer]),
        more=Documented(refuses=(422,), headers=("Vary", "Preference-Applied", REVISION_HEADER)),
    )

    async def handle(scope: Scope, receive: Receive) -> RawAnswer:
        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                continue

        path = scope["path_params"]
        request = _parse(scope, Member(path["organization_id"], kind, path[f"{kind}_id"]), operation.more)
        answer = await permissions.read(request, disconnected)
        headers = [
            (b"etag", answer.etag.encode()),
            (b"vary", b"Prefer"),
            (_REVISION, format_revisions({"template": answer.revision}).encode()),
        ]
        if answer.waited_s is not None:
            headers.append((b"preference-applied", b"wait=%d" % answer.waited_s))
        if answer.permissions is None:
            return RawAnswer(304, headers)
        return RawAnswer(200, headers, [organization_permission_answer(each) for each in answer.permissions])

    return read(_PATH.format(kind=kind), handle, operation=operation)


def _parse(scope: Scope, member: Member, declared: Documented) -> ReadRequest:
    headers: dict[bytes, list[bytes]] = {AUTHORIZATION: [], _IF_NONE_MATCH: [], _PREFER: [], _REVISION: []}
    for name, value in scope["headers"]:
        if name in headers:
            headers[name].append(value)
    malformed: AnyFailure | None = None
    awaited: dict[str, int] = {}
    try:
        require_storable_path(scope)
        if scope["query_string"]:
            require_declared(scope["query_string"], declared)
        awaited = parse_revisions(_text(headers[_REVISION]))
    except MalformedRevisionError:
        message = "must be of the form management:97 or management:97, template:184"
        malformed = invalid_input(Issue(path=REVISION_HEADER, message=message))
    except AnyFailure as failure:
        malformed = failure
    return ReadRequest(
        authorization=_text(headers[AUTHORIZATION]),
        member=member,
        condition=b", ".join(headers[_IF_NONE_MATCH]),
        wait_s=preferred_wait(_text(headers[_PREFER])) or 0,
        awaited=awaited,
        malformed=malformed,
    )


def _text(values: Sequence[bytes]) -> list[str]:
    return [value.decode("latin-1") for value in values]
