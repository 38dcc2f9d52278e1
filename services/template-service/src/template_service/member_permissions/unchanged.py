"""Polls for what a member may do that has not changed, answered without the router.

Such a poll is what this service is asked for most, and most of its time would be the framework's. Whatever is not a
plain poll, is refused, or finds a change is left to the route, which answers the same and more.
"""

import re
from typing import Final

from litestar.types import ASGIApp, Receive, Scope, Send

from identity_common.http.api_errors import ApiError
from identity_common.http.request_headers import header_values
from identity_common.revisions import HEADER as REVISION_HEADER
from identity_common.revisions import format_revisions
from stead.event_types import MemberType
from template_service.member_permissions.access import Readers
from template_service.member_permissions.service import Answer, Member, MemberPermissions

_PATH: Final = re.compile(r"/api/organizations/([0-9A-Za-z]+)/(users|applications)/([0-9A-Za-z]+)/scopes")
_MEMBER_TYPES: Final[dict[str, MemberType]] = {"users": "user", "applications": "application"}
_REVISION: Final = REVISION_HEADER.lower().encode()
_SAYS_MORE: Final = frozenset({b"prefer", _REVISION})
"""Headers that ask for more than a plain poll."""


class UnchangedPolls:
    """ASGI layer before the router."""

    def __init__(self, app: ASGIApp, readers: Readers, permissions: MemberPermissions) -> None:
        self._app = app
        self._readers = readers
        self._permissions = permissions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        answer = await self._unchanged(scope)
        if answer is None:
            await self._app(scope, receive, send)
            return
        headers = [
            (b"etag", answer.etag.encode()),
            (b"vary", b"Prefer"),
            (_REVISION, format_revisions({"template": answer.revision}).encode()),
        ]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _unchanged(self, scope: Scope) -> Answer | None:
        """Return the answer to a plain poll of somebody who knows it already; none for the router to answer."""
        if scope["type"] != "http" or scope["method"] != "GET":  # type: ignore[comparison-overlap,typeddict-item]
            return None
        path = _PATH.fullmatch(scope["path"])
        if path is None:
            return None
        condition = header_values(scope, b"if-none-match")
        if len(condition) != 1 or any(name in _SAYS_MORE for name, _ in scope["headers"]):
            return None
        organization_id, kind, member_id = path.groups()
        member = Member(organization_id, _MEMBER_TYPES[kind], member_id)
        try:
            token = await self._readers.recognize(scope, organization_id, member_id)
            answer = await self._permissions.unchanged(
                member,
                token.claims,
                condition[0].encode("latin-1"),
                meanwhile=lambda: self._readers.require_unrevoked(token),
            )
        except ApiError:
            return None
        scope["path_template"] = f"/api/organizations/{{organization_id}}/{kind}/{{{_MEMBER_TYPES[kind]}_id}}/scopes"
        return answer
