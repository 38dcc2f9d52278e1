"""The verifier as ASGI middleware: no request reaches the application without what its route demands.

Owns finding the token in a request, and the answers of RFC 6750. What a token must say stands in ``verification``,
what a route may demand in ``_routes``. Knows no framework.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus

import msgspec

from stead._routes import Access, Declared, OrganizationAware, Routes
from stead.errors import TokenInvalid, Unavailable
from stead.verification import AccessToken
from stead.verifiers import AsyncAccessTokenVerifier

__all__ = ["Access", "AccessTokenMiddleware", "OrganizationAware", "access_token_of"]

_log = logging.getLogger("stead")

# Frameworks name these types differently; what is passed on is what came in.
_Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
_Scope: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[Any], Awaitable[None]]

_STATE_KEY: Final = "access_token"
_BEARER: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9\-._~+/]+=*)")  # RFC 6750 section 2.1
_POLICY_VIOLATION: Final = 1008  # RFC 6455 section 7.4.1


def access_token_of(scope: Mapping[str, object]) -> AccessToken:
    """Return the access token that came with a request, verified.

    Args:
        scope: ASGI's, which frameworks call ``request.scope``.

    Raises:
        LookupError: There is none: the route is public, or ``AccessTokenMiddleware`` is not around the application.
    """
    state = scope.get("state")
    token = state.get(_STATE_KEY) if isinstance(state, Mapping) else None
    if isinstance(token, AccessToken):
        return token
    raise LookupError("no access token was verified: is the route public, or the middleware missing?")


class AccessTokenMiddleware:
    """Lets only those requests through that carry an access token with the scopes that their route demands.

    ::

        app = AccessTokenMiddleware(
            app,
            verifier=AsyncAccessTokenVerifier(issuer="https://id.example.com/oidc", audience="https://api.example.com"),
            routes={
                "GET /orders": "read:orders",
                "POST /orders": "write:orders",
                "GET /orders/{order_id}": "read:orders",
                "GET /organizations/{organization_id}/orders": OrganizationAware("read:orders"),
                "GET /me": Access.ANY_TOKEN,
                "GET /health": Access.PUBLIC,
            },
        )

    A route that is not declared is answered 404 or 405 (401 without a token), so that none is open because it was
    forgotten. Paths are written as in Starlette and Litestar; where several fit, the most specific one counts,
    whatever the order. HEAD is judged as GET. A WebSocket is a route with ``WEBSOCKET`` in the place of the method, and
    is judged when it is opened.

    The scopes of a token with the claim ``organization_id`` are what its subject may do in that organization, perhaps
    nowhere else. It is answered 403, unless the route is declared ``OrganizationAware``: then it is for the application
    to see that the request is about that organization.

    What the token says is in ``access_token_of(request.scope)``, and in ``scope["state"]["access_token"]``, which
    frameworks show as ``request.state.access_token``.

    The token is taken from the ``Authorization`` header alone. Put this middleware around the whole application, and
    around it whatever adds CORS headers, which refusals need as well.
    """

    def __init__(
        self, app: _Application, *, verifier: AsyncAccessTokenVerifier, routes: Mapping[str, Declared]
    ) -> None:
        """Put an application behind a verifier.

        Args:
            app: Any ASGI application.
            verifier: Knows the issuer and this API's audience; there is none without.
            routes: What each route demands: scope tokens with single spaces between them, all of which the token must
                hold, or ``Access.ANY_TOKEN`` or ``Access.PUBLIC``; or one of the former two, ``OrganizationAware``.

        Raises:
            ValueError: A route is not of the form ``GET /path/{parameter}``, is declared twice, or demands nothing that
                can be demanded.
            TypeError: The verifier is another one: an ``AccessTokenVerifier`` would block the event loop.
        """
        if not isinstance(verifier, AsyncAccessTokenVerifier):
            raise TypeError("verifier must be an AsyncAccessTokenVerifier")
        self._app = app
        self._verifier = verifier
        self._routes = Routes(routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Judge a request, and pass it on or answer it.

        Raises:
            ValueError: The scope is of a type that this version cannot judge.
        """
        kind = scope["type"]
        if kind == "http" or kind == "websocket":
            judged = await self._judge(scope)
            if isinstance(judged, _Refusal):
                await judged.answer(scope, send)
                return
            if judged is not None:
                scope = {**scope, "state": {**scope.get("state", {}), _STATE_KEY: judged}}
        elif kind != "lifespan":
            raise ValueError("requests of this type cannot be judged")
        await self._app(scope, receive, send)

    async def _judge(self, scope: _Scope) -> AccessToken | _Refusal | None:
        """Return the token of a request that may go on, None if it needs none, or why it may not."""
        method: str | None = scope["method"] if scope["type"] == "http" else None
        path = _path_below_root(scope)
        demanded = self._routes.find(method, path)
        if demanded is Access.PUBLIC:
            return None
        candidate = _bearer_token(scope)
        if isinstance(candidate, _Refusal):
            return candidate
        try:
            token = await self._verifier.verify(candidate, organization_aware=True)
        except TokenInvalid as invalid:
            _log.debug("an access token was refused: %s", invalid.reason)
            return _INVALID_TOKEN
        except Unavailable as unavailable:
            return _no_keys(unavailable.retry_after)
        if demanded is None:
            return _no_such_route(self._routes.methods(path) if method else [])
        if token.organization_id is not None and not demanded.organization_aware:
            return _ONE_ORGANIZATION
        return token if demanded.scopes <= token.scopes else _insufficient_scope(demanded.scopes)


class _Refusal:
    """An answer in the place of the application's: RFC 6750 section 3, with its words in a small JSON object too."""

    __slots__ = ("_body", "_headers", "_status")

    def __init__(
        self, status: int, error: str, description: str, *, challenge: str = "", headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        self._status = status
        self._body = msgspec.json.encode({"error": error, "error_description": description})
        named = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self._body))),
            ("Cache-Control", "no-store"),
            *([("WWW-Authenticate", challenge)] if challenge else []),
            *headers,
        ]
        self._headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in named]

    async def answer(self, scope: _Scope, send: _Send) -> None:
        """Send the answer; to a WebSocket the server's own 403 if it cannot be told more."""
        prefix = ""
        if scope["type"] == "websocket":
            if "websocket.http.response" not in (scope.get("extensions") or {}):
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            prefix = "websocket."
        start = {"type": f"{prefix}http.response.start", "status": self._status, "headers": list(self._headers)}
        await send(start)
        await send({"type": f"{prefix}http.response.body", "body": self._body})


# RFC 6750 section 3: whoever has not authenticated, or not in this way, is told no more than how.
_NO_TOKEN: Final = _Refusal(401, "unauthenticated", "An access token is required.", challenge="Bearer")
_INVALID_TOKEN: Final = _Refusal(
    401, "invalid_token", "The access token is not accepted.", challenge='Bearer error="invalid_token"'
)

# A good token, which RFC 6750 section 3.1 does not let be called invalid; but no scope would make it do.
_ONE_ORGANIZATION: Final = _Refusal(
    403,
    "insufficient_scope",
    "The access token counts within one organization only.",
    challenge='Bearer error="insufficient_scope"',
)


def _invalid_request(description: str) -> _Refusal:
    return _Refusal(400, "invalid_request", description, challenge='Bearer error="invalid_request"')


_MALFORMED: Final = _invalid_request("The Authorization header is malformed.")
_REPEATED: Final = _invalid_request("There is more than one Authorization header.")
_TWO_METHODS: Final = _invalid_request("An access token is in the header and in the query.")


def _insufficient_scope(demanded: frozenset[str]) -> _Refusal:
    scope = " ".join(sorted(demanded))
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    return _Refusal(403, "insufficient_scope", f"The access token must hold: {scope}", challenge=challenge)


def _no_such_route(methods: list[str]) -> _Refusal:
    if not methods:
        return _Refusal(404, "not_found", "No such route is declared.")
    allowed = [("Allow", ", ".join(methods))]
    return _Refusal(405, "method_not_allowed", "No such route is declared with this method.", headers=allowed)


def _no_keys(retry_after: float | None) -> _Refusal:
    headers = [("Retry-After", str(max(1, math.ceil(retry_after or 1))))]
    return _Refusal(503, "temporarily_unavailable", "The keys of the issuer cannot be read.", headers=headers)


def _path_below_root(scope: _Scope) -> str:
    """Return the path that the router of the framework goes by; one that is declared by nobody if routers disagree."""
    path: str = scope["path"]
    root: str = scope.get("root_path") or ""
    if not root:
        return path
    if path == root:
        return "/"
    return path[len(root) :] if path.startswith(f"{root}/") else ""


def _bearer_token(scope: _Scope) -> str | _Refusal:
    values = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    if not values:
        return _NO_TOKEN
    if len(values) > 1:
        return _REPEATED
    value = values[0].strip(b" \t")
    if value.partition(b" ")[0].lower() != b"bearer":
        return _NO_TOKEN
    bearer = _BEARER.fullmatch(value)
    if bearer is None:
        return _MALFORMED
    return _TWO_METHODS if _names_a_token(scope.get("query_string", b"")) else bearer[1].decode("ascii")


def _names_a_token(query: bytes) -> bool:
    return any(
        unquote_plus(parameter.partition("=")[0]) == "access_token" for parameter in query.decode("latin-1").split("&")
    )
