"""``/oidc/me/impersonations``: users list and end the impersonations of their own account.

The caller is the user: a userinfo token from a sign-in, with the scope ``impersonations``.
"""

from typing import Final

from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.types import ASGIApp, HTTPScope

from identity_common.access.management_api import admitted_caller
from identity_common.access.own_sign_in import require_own_sign_in
from identity_common.audited_request import audit_reason
from identity_common.http.json_body import JsonRequest
from identity_common.http.layers.cors import Cors, Headers
from identity_common.http.openapi.declarations import OwnSignIn, documented
from identity_common.http.pagination import parse_query
from identity_common.oauth import SCOPE_IMPERSONATIONS
from management_service.impersonations.register import ImpersonationRegister, RegisterFilters
from management_service.impersonations.routes import ACTIVE, EXAMPLE, PAGES, page_of
from management_service.impersonations.rules import ImpersonationEnding
from management_service.impersonations.service import Impersonations
from management_service.impersonations.stories import ImpersonationStory

PATH: Final = "/oidc/me/impersonations"

_READABLE: Final = (f"{PATH}/", "/api/my-account/")
_OWN: Final = OwnSignIn(SCOPE_IMPERSONATIONS)

_ANY_PAGE: Final[Headers] = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"ETag, Identity-Revision, Link, Retry-After, WWW-Authenticate"),
]


def readable_by_pages(app: ASGIApp) -> ASGIApp:
    """Return the app with the CORS layer: pages of every origin may read these answers, as those of userinfo."""
    return Cors(app, _permission, methods=b"GET, POST, PATCH, DELETE")


def _permission(request: HTTPScope, _: bytes | None) -> Headers | None:
    return _ANY_PAGE if f"{request['path']}/".startswith(_READABLE) else None


async def own_page(request: JsonRequest, register: ImpersonationRegister) -> Response[list[ImpersonationStory]]:
    """Return the requested page of the impersonations in which the caller is the subject.

    Raises:
        Invalid: A parameter is not from an earlier page.
    """
    given = dict(parse_query(request.scope["query_string"]))
    filters = RegisterFilters(
        is_active=None if "active" not in given else given["active"] == "true",
        user_id=admitted_caller(request).user_id,
    )
    return await page_of(request, register, filters, given)


class OwnImpersonationController(Controller):
    """Lists the impersonations of the user's own account, and ends them one by one."""

    path = PATH
    tags = ("Impersonations",)
    guards = (require_own_sign_in,)

    @get(
        "/",
        operation_id="ListOwnImpersonations",
        summary="List impersonations of the user's own account",
        opt=documented(example=[EXAMPLE], filters=(ACTIVE, *PAGES), headers=("Link",), own_sign_in=_OWN),
    )
    async def list_impersonations(
        self, request: JsonRequest, impersonation_register: NamedDependency[ImpersonationRegister]
    ) -> Response[list[ImpersonationStory]]:
        """List impersonations in which the user is the subject, newest first."""
        answer = await own_page(request, impersonation_register)
        answer.headers["Cache-Control"] = "private, no-cache"
        return answer

    @post(
        "/{impersonation_id:str}/end",
        operation_id="EndOwnImpersonation",
        summary="End an impersonation of the user's own account",
        status_code=204,
        opt=documented(body=ImpersonationEnding, body_required=False, refuses=(422,), own_sign_in=_OWN),
    )
    async def end(
        self,
        impersonation_id: FromPath[str],
        request: JsonRequest,
        impersonations: NamedDependency[Impersonations],
    ) -> None:
        """End an impersonation in which the user is the subject, and those within it. Ending one again changes nothing.

        An exchange that is sent after the response is refused, also without Identity-Revision. One that overlaps with
        this request may succeed; introspection refuses its token from the response on. APIs that follow the not-valid
        feed refuse it within a second, others accept it until it expires. After a 503 the end may be recorded and not
        be in effect yet: repeat the request.
        """
        audit_reason((await request.options_as(ImpersonationEnding)).reason or None)
        user_id = admitted_caller(request).user_id or ""
        await impersonations.end_own(user_id, impersonation_id)
