"""``/api/organizations/{id}/users/{userId}/scopes``, and its twin for applications."""

from typing import Any, Final

from litestar import MediaType, Request, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.http.api_errors import Issue, invalid_input
from identity_common.http.openapi import RequestHeader, documented
from identity_common.revisions import HEADER as REVISION_HEADER
from identity_common.revisions import MalformedRevisionError, format_revisions, parse_revisions
from template_service.member_permissions.access import authenticated_reader, require_reader
from template_service.member_permissions.preferences import preferred_wait
from template_service.member_permissions.service import MAX_WAIT_S, Caller, Member, MemberPermissions, Wish
from template_service.permissions.routes import OrganizationPermissionAnswer, organization_permission_answer

_DOCUMENTED: Final = documented(
    refuses=(422,),
    headers=("Vary", "Preference-Applied", REVISION_HEADER),
    request_headers=(
        RequestHeader(
            "Prefer",
            f"wait, in seconds, {MAX_WAIT_S} at most: with If-None-Match, hold the answer until it is another one or "
            "the time is over (RFC 7240).",
            "wait=20",
        ),
        RequestHeader(REVISION_HEADER, "Answer from a state that includes these revisions.", "template:184"),
    ),
)

Answer = Response[list[OrganizationPermissionAnswer]]


@get(
    "/organizations/{organization_id:str}/users/{user_id:str}/scopes",
    operation_id="ListOrganizationUserScopes",
    summary="List the permissions of a user in an organization",
    tags=["Organizations"],
    guards=[require_reader],
    opt=_DOCUMENTED,
)
async def list_user_scopes(
    request: Request[Any, Any, Any],
    organization_id: FromPath[str],
    user_id: FromPath[str],
    member_permissions: NamedDependency[MemberPermissions],
) -> Answer:
    """List the organization permissions that a user holds in an organization: the union over its roles, by name.

    For the user itself, by an organization token, and for callers of the Management API.
    """
    return await _answer(request, Member(organization_id, "user", user_id), member_permissions)


@get(
    "/organizations/{organization_id:str}/applications/{application_id:str}/scopes",
    operation_id="ListOrganizationApplicationScopes",
    summary="List the permissions of an application in an organization",
    tags=["Organizations"],
    guards=[require_reader],
    opt=_DOCUMENTED,
)
async def list_application_scopes(
    request: Request[Any, Any, Any],
    organization_id: FromPath[str],
    application_id: FromPath[str],
    member_permissions: NamedDependency[MemberPermissions],
) -> Answer:
    """List the organization permissions that an application holds in an organization: the union over its roles.

    For the application itself, by an organization token, and for callers of the Management API.
    """
    return await _answer(request, Member(organization_id, "application", application_id), member_permissions)


async def _answer(request: Request[Any, Any, Any], member: Member, permissions: MemberPermissions) -> Answer:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    caller = Caller(request.auth, lambda: authenticated_reader(request), gone)
    answer = await permissions.read(member, caller, _wish(request))
    revision = format_revisions({"template": answer.revision})
    headers = {"ETag": answer.etag, "Vary": "Prefer", REVISION_HEADER: revision}
    if answer.waited_s is not None:
        headers["Preference-Applied"] = f"wait={answer.waited_s}"
    if answer.permissions is None:
        return Response(None, status_code=304, headers=headers, media_type=MediaType.TEXT)  # type: ignore[arg-type]
    return Response([organization_permission_answer(each) for each in answer.permissions], headers=headers)


def _wish(request: Request[Any, Any, Any]) -> Wish:
    try:
        awaited = parse_revisions(request.headers.getall(REVISION_HEADER, []))
    except MalformedRevisionError:
        message = "must be of the form management:97 or management:97, template:184"
        raise invalid_input(Issue(path=REVISION_HEADER, message=message)) from None
    return Wish(
        condition=", ".join(request.headers.getall("If-None-Match", [])).encode("latin-1"),
        wait_s=preferred_wait(request.headers.getall("Prefer", [])) or 0,
        awaited=awaited,
    )
