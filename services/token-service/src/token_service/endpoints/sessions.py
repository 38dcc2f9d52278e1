"""The sign-in sessions of a user: for callers of the Management API, and for the user.

``/api/users/{userId}/sessions`` and ``/api/my-account/sessions``.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from litestar import Controller, Response, delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from identity_common.access.management_api import admitted_caller, require_management
from identity_common.access.own_sign_in import ACCOUNT, own_id, require_own_sign_in
from identity_common.failures import missing_by_id
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.http.pagination import MAX_NUMBER, MAX_SIZE, list_headers, read_page
from identity_common.paging import DEFAULT_SIZE, Page
from token_service.authorizations import Authorizations
from token_service.directory import Directory
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.sessions import Session, Sessions

_PAGES: Final = (
    Filter("page", "Number of the page, from 1.", bounds=(1, MAX_NUMBER)),
    Filter("page_size", f"Sessions per page; {DEFAULT_SIZE} by default.", bounds=(1, MAX_SIZE)),
)
_HEADERS: Final = ("Total-Number", "Link")

V = TypeVar("V", bound="SessionView")


class SessionView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A sign-in session: one user at one browser until sign-out.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the session; ``sid`` in ID tokens.
        user_id: Id of the user.
        created_at: The first sign-in, milliseconds since the epoch.
        signed_in_at: The last sign-in, milliseconds since the epoch.
        expires_at: When it ends by itself, milliseconds since the epoch; null if an earlier version began it.
        address: Address of the browser at the last sign-in; empty if an earlier version recorded none.
        user_agent: ``User-Agent`` of the browser at the last sign-in, at most 256 characters; it may be anything.
    """

    tenant_id: str
    id: str
    user_id: str
    created_at: int
    signed_in_at: int
    expires_at: int | None
    address: str
    user_agent: str


class OwnSessionView(SessionView, frozen=True, kw_only=True, rename="camel"):
    """A sign-in session, for its user.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the session; ``sid`` in ID tokens.
        user_id: Id of the user.
        created_at: The first sign-in, milliseconds since the epoch.
        signed_in_at: The last sign-in, milliseconds since the epoch.
        expires_at: When it ends by itself, milliseconds since the epoch; null if an earlier version began it.
        address: Address of the browser at the last sign-in; empty if an earlier version recorded none.
        user_agent: ``User-Agent`` of the browser at the last sign-in, at most 256 characters; it may be anything.
        is_current: Whether the access token of this request comes from it.
    """

    is_current: bool


class SessionController(Controller):
    """Lists and ends the sessions of a user."""

    path = "/api/users/{user_id:str}/sessions"
    tags = ("Users",)
    guards = (require_management,)

    @get(
        "/",
        operation_id="ListUserSessions",
        summary="List the sign-in sessions of a user",
        opt=documented(filters=_PAGES, headers=_HEADERS),
    )
    async def list_sessions(
        self,
        user_id: FromPath[str],
        request: JsonRequest,
        directory: NamedDependency[Directory],
        sessions: NamedDependency[Sessions],
        tenant_id: NamedDependency[str],
    ) -> Response[list[SessionView]]:
        """Return the sessions in which a user is signed in; the last to sign in come first."""
        page = read_page(request.scope["query_string"], whole_by_default=False)
        total, found = await _page_of(user_id, page, directory, sessions)
        return _answer(request, page, total, [SessionView(**_members(each, tenant_id)) for each in found])

    @delete("/{session_id:str}", operation_id="EndUserSession", summary="End a sign-in session of a user")
    async def end_session(
        self,
        user_id: FromPath[str],
        session_id: FromPath[str],
        directory: NamedDependency[Directory],
        session_ends: NamedDependency[SessionEnds],
    ) -> None:
        """End a session, as signing out does: the tokens that applications got in it are revoked.

        APIs that neither introspect nor follow the not-valid feed accept revoked access tokens until they expire. After
        a 503 the end may be recorded and not be in effect yet: repeat the request.
        """
        if await directory.person(user_id, at_least={}) is None:
            raise missing_by_id()
        await session_ends.by_request(user_id, session_id)


class OwnSessionController(Controller):
    """Lists and ends the user's own sessions."""

    path = "/api/my-account/sessions"
    tags = ("My account",)
    guards = (require_own_sign_in,)

    @get(
        "/",
        operation_id="ListOwnSessions",
        summary="List the user's own sign-in sessions",
        opt=documented(filters=_PAGES, headers=_HEADERS, own_sign_in=ACCOUNT),
    )
    async def list_sessions(
        self,
        request: JsonRequest,
        authorizations: NamedDependency[Authorizations],
        directory: NamedDependency[Directory],
        sessions: NamedDependency[Sessions],
        tenant_id: NamedDependency[str],
    ) -> Response[list[OwnSessionView]]:
        """Return the sessions in which the user is signed in; the last to sign in come first."""
        page = read_page(request.scope["query_string"], whole_by_default=False)
        total, found = await _page_of(own_id(request), page, directory, sessions)
        authorization_id = admitted_caller(request).token_id.partition(".")[0]
        current = await authorizations.session_of(authorization_id)
        views = [OwnSessionView(**_members(each, tenant_id), is_current=each.id == current) for each in found]
        return _answer(request, page, total, views)

    @delete(
        "/{session_id:str}",
        operation_id="EndOwnSession",
        summary="End one of the user's own sign-in sessions",
        opt=documented(own_sign_in=ACCOUNT),
    )
    async def end_session(
        self, session_id: FromPath[str], request: JsonRequest, session_ends: NamedDependency[SessionEnds]
    ) -> None:
        """End a session, as signing out does: the tokens that applications got in it are revoked.

        With the current session, the access token of this request ends too. APIs that neither introspect nor follow the
        not-valid feed accept revoked access tokens until they expire. After a 503 the end may be recorded and not be in
        effect yet: repeat the request.
        """
        await session_ends.by_request(own_id(request), session_id)


async def _page_of(user_id: str, page: Page, directory: Directory, sessions: Sessions) -> tuple[int, Sequence[Session]]:
    """Return how many sessions a user has, and those of a page; a suspension or a new password has ended earlier ones.

    Raises:
        NotFound: The user does not exist.
    """
    person = await directory.person(user_id, at_least={})
    if person is None:
        raise missing_by_id()
    since = person.user.tokens_valid_after
    return await sessions.all_of_user(user_id, since=since, offset=page.offset, limit=page.size or DEFAULT_SIZE)


def _members(session: Session, tenant_id: str) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "id": session.id,
        "user_id": session.user_id,
        "created_at": session.created_at or session.signed_in_at,
        "signed_in_at": session.signed_in_at,
        "expires_at": session.expires_at or None,
        "address": session.address,
        "user_agent": session.user_agent,
    }


def _answer(request: JsonRequest, page: Page, total: int, views: list[V]) -> Response[list[V]]:
    address = request.app.state.base_url + request.scope["path"]
    headers = list_headers(address=address, query_string=request.scope["query_string"], page=page, total=total)
    return Response(views, headers=headers)
