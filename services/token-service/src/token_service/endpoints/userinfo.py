"""``GET`` and ``POST /oidc/me`` (OpenID Connect Core 1.0 section 5.3): claims about the subject of a userinfo token.

The token comes in the Authorization header or in a form (RFC 6750 sections 2.1 and 2.2), never in the URI.
"""

from typing import Final

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from identity_common.http.request_headers import header_values
from token_service.authorizations import Consents
from token_service.endpoints.raw_routes import (
    HEADERS,
    encode,
    error_body,
    read_form,
    retry_headers,
    send_answer,
    unexpected,
)
from token_service.grants.failures import REFUSALS, refusal_of
from token_service.grants.oauth_errors import OAuthError, insufficient_scope, invalid_request
from token_service.openapi.endpoints import USERINFO_OPERATIONS
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused
from token_service.tokens.identity import PersonClaims
from token_service.tokens.user_claims import UserClaims

PATH: Final = "/oidc/me"

_FORM: Final = "application/x-www-form-urlencoded"


class _NoCredentials(Exception):  # noqa: N818 - not an error of the protocol (RFC 6750 section 3.1)
    """The request has no access token."""


class Userinfo:
    """Reads the claims that a userinfo token releases."""

    def __init__(
        self, live_tokens: LiveTokens, user_claims: UserClaims, consents: Consents, *, userinfo_audience: str
    ) -> None:
        self._live_tokens = live_tokens
        self._user_claims = user_claims
        self._consents = consents
        self._userinfo_audience = userinfo_audience

    async def about(self, access_token: str) -> PersonClaims:
        """Return the claims about the subject of a token, never about its actor.

        Raises:
            OAuthError: ``invalid_token`` (401), ``insufficient_scope`` (403).
        """
        try:
            live = await self._live_tokens.verify(access_token, audience=self._userinfo_audience)
        except TokenRefused:
            raise _invalid_token() from None
        if live.person is None:
            raise _invalid_token()
        if "openid" not in live.token.scopes:
            raise insufficient_scope("this needs the scope openid")
        picked = None
        if self._user_claims.opens_organizations(live.token.scopes):
            picked = await self._consents.picked(live.person.user.id, live.client)
        return await self._user_claims.claims(live.person, live.token.scopes, picked=picked, at_least={})


def _invalid_token() -> OAuthError:
    return OAuthError("invalid_token", "the access token is not accepted", status=401)


def userinfo_endpoint(userinfo: Userinfo) -> ASGIRouteHandler:
    """Return the route."""

    @asgi(PATH, copy_scope=False, opt=USERINFO_OPERATIONS)
    async def me(scope: Scope, receive: Receive, send: Send) -> None:
        """Return claims about the subject."""
        try:
            claims = await userinfo.about(await _access_token(scope, receive))
        except _NoCredentials:
            await send_answer(send, 401, [*HEADERS, _challenge(None)], b"")
        except REFUSALS as error:
            await _refuse(refusal_of(error), send)
        except Exception as error:  # noqa: BLE001 - the edge
            await _refuse(unexpected(error, scope), send)
        else:
            await send_answer(send, 200, HEADERS, encode(claims))

    return me


async def _access_token(scope: Scope, receive: Receive) -> str:
    """Return the presented token.

    Source:
        RFC 6750 section 2 (more than one method at a time is an ``invalid_request``).
    """
    method = scope["method"]  # type: ignore[typeddict-item]
    if method not in {"GET", "POST"}:
        raise OAuthError("invalid_request", "this endpoint takes GET and POST", status=405)
    presented = [_bearer(value) for value in header_values(scope, b"authorization")]
    content_type = "".join(header_values(scope, b"content-type"))
    if method == "POST" and content_type.partition(";")[0].strip().lower() == _FORM:
        in_form = (await read_form(scope, receive)).get("access_token")
        presented += [] if in_form is None else [in_form]
    if not presented:
        raise _NoCredentials
    if len(presented) > 1:
        raise invalid_request("the access token is presented twice")
    return presented[0]


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer":
        raise _NoCredentials
    return token.strip(" ")


def _challenge(error: OAuthError | None) -> tuple[bytes, bytes]:
    """Return the challenge (RFC 6750 section 3); it omits the error if there are no credentials (section 3.1)."""
    challenge = 'Bearer realm="userinfo"'
    if error is not None:
        challenge += f', error="{error.error}", error_description="{error.description}"'
        if error.error == "insufficient_scope":
            challenge += ', scope="openid"'
    return b"www-authenticate", challenge.encode()


async def _refuse(error: OAuthError, send: Send) -> None:
    headers = [*HEADERS, *retry_headers(error)]
    if error.status in {400, 401, 403}:
        headers.append(_challenge(error))
    elif error.status == 405:
        headers.append((b"allow", b"GET, HEAD, POST"))
    await send_answer(send, error.status, headers, error_body(error))
