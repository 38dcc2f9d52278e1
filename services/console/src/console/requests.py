"""One request of a signed-in administrator: what the roles let them do, and the Management API on their behalf."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx2 as httpx
import msgspec
from litestar.response import Stream

from console.rights import missing_scope
from console.sessions import Session
from console.signed_in import AnyRequest, NoSuchPage, SignedInRequest, SignInNeeded, Site, SiteContext
from identity_common.rights.scopes import MANAGEMENT_SCOPES, SCOPE_READ, implied
from stead.errors import ApiError, Forbidden, OAuthError, Unavailable

HOME: Final = "/console"


class NoRights(Exception):  # noqa: N818 - the name is what happened
    """The user has no role for the Management API, or none for what was asked for.

    Attributes:
        scope: The missing scope; empty if there is none at all.
    """

    def __init__(self, scope: str = "") -> None:
        super().__init__(scope)
        self.scope = scope


def console_site(management_api: str) -> Site:
    """Return the console; its sign-in requests all scopes of the Management API, and gets those of the user's roles.

    Args:
        management_api: Indicator of the Management API.
    """
    return Site(name="console", home=HOME, scopes=tuple(MANAGEMENT_SCOPES), resource=management_api)


class ConsoleRequest(SignedInRequest):
    """One request of a signed-in administrator.

    Attributes:
        scopes: What the administrator's roles grant, the scopes that others include among them.
    """

    def __init__(self, context: SiteContext, request: AnyRequest, session: Session) -> None:
        super().__init__(context, request, session)
        self.scopes: frozenset[str] = frozenset()

    @property
    def management_api(self) -> str:
        """Indicator of the Management API."""
        return self._context.site.resource or ""

    @property
    def is_read_only(self) -> bool:
        """Whether the administrator may change nothing at all."""
        return self.scopes <= implied([SCOPE_READ, "audit:export"])

    @property
    def _frame(self) -> Mapping[str, Any]:
        """What the pages show of the administrator's rights."""
        return {
            **super()._frame,
            "may": self.may,
            "may_change": self.may(self.original.url.path, changes=True),
            "is_read_only": self.is_read_only,
        }

    def may(self, path: str, *, changes: bool = False) -> bool:
        """Return whether the administrator may see the page at this address, or change what it shows."""
        return missing_scope(self.scopes, path, changes=changes) is None

    async def open(self) -> None:
        """Determine what the administrator may do.

        Raises:
            SignInNeeded: The session has ended.
            NoRights: No role grants a scope of the Management API.
            Unavailable: The token endpoint did not answer.
        """
        token = await self._access_token(None)
        self.scopes = implied(_scopes(token))
        if not self.scopes:
            raise NoRights

    def admit(self, *, changes: bool) -> None:
        """Refuse an administrator whose roles do not allow what is done at this address.

        Raises:
            NoRights: A scope is missing.
        """
        missing = missing_scope(self.scopes, self.original.scope["path"].rstrip("/"), changes=changes)
        if missing is not None:
            raise NoRights(missing)

    def _refused(self, refusal: OAuthError) -> Exception:
        """Return what a refusal of the token endpoint means: no rights, another sign-in, or the end of the session."""
        if refusal.requires_sign_in:
            return SignInNeeded()
        has_no_rights = refusal.error in {"invalid_target", "access_denied", "invalid_scope"}
        return NoRights() if has_no_rights else SignInNeeded()

    async def download(
        self, path: str, *, name: str, parameters: Mapping[str, str] | None = None, sent: object = None
    ) -> Stream:
        """Stream a response of the API as a file.

        Args:
            path: Path of the API.
            name: Name of the file.
            parameters: Of the query.
            sent: Body of the request, encoded as JSON; without one it is a GET.

        Raises:
            NoSuchPage: There is nothing at this path.
            Unavailable: The API did not answer, or refused.
        """
        http = self._context.http
        headers = {**self._forwarded, "Authorization": f"Bearer {await self._access_token(None)}"}
        method, body = ("GET", None) if sent is None else ("POST", msgspec.json.encode(sent))
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = http.build_request(
            method, self._context.base_url + quote(path), params=parameters, headers=headers, content=body
        )
        try:
            answer = await http.send(request, stream=True)
        except httpx.RequestError as error:
            raise Unavailable(f"{method} {path}: {type(error).__name__}") from None
        if not answer.is_success:
            await answer.aclose()
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise NoSuchPage
            raise Unavailable(f"{method} {path}: {answer.status_code}")

        async def content() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.aiter_bytes():
                    yield chunk
            finally:
                await answer.aclose()

        return Stream(
            content(),
            media_type=answer.headers["Content-Type"].partition(";")[0],  # the framework adds the character set
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
            },
        )

    async def _is_applied_everywhere(self) -> bool:
        """Return whether token-service and template-service have applied every change of this session."""
        paths = ("/api/configs/oidc/private-keys", "/api/organizations?page_size=1")
        answers = await asyncio.gather(*(self.api.request("GET", path) for path in paths), return_exceptions=True)
        return not any(  # a service that refuses the reader would not have carried out a change either
            isinstance(answer, (ApiError, Unavailable, SignInNeeded)) and not isinstance(answer, Forbidden)
            for answer in answers
        )


def _scopes(token: str) -> frozenset[str]:
    """Return the scopes of our own access token; the API verifies it."""
    payload = token.split(".")[1]
    claims: Mapping[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return frozenset(str(claims.get("scope", "")).split(" "))
