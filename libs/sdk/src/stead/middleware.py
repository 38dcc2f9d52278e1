"""ASGI middleware that lets a request through only if its access token has the scopes that the route requires.

Owns extracting the token from a request, and the error answers of RFC 6750. Does not own the rules for tokens
(``verification``) or the route table (``_routes``). Independent of any framework.
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

# Frameworks name these types differently, so the interface accepts any.
_Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
_Scope: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[Any], Awaitable[None]]

_STATE_KEY: Final = "access_token"
_BEARER: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9\-._~+/]+=*)")  # RFC 6750 section 2.1
_POLICY_VIOLATION: Final = 1008  # RFC 6455 section 7.4.1


def access_token_of(scope: Mapping[str, object]) -> AccessToken:
    """Return the verified access token of a request.

    ::

        @get("/orders")
        async def orders(request: Request) -> list[Order]:
            return await orders_of(access_token_of(request.scope).subject)

    Args:
        scope: The ASGI scope; frameworks call it ``request.scope``.

    Raises:
        LookupError: The route is public, or the application is not wrapped in ``AccessTokenMiddleware``.
    """
    state = scope.get("state")
    token = state.get(_STATE_KEY) if isinstance(state, Mapping) else None
    if isinstance(token, AccessToken):
        return token
    raise LookupError("no access token was verified: is the route public, or the middleware missing?")


class AccessTokenMiddleware:
    """Requires an access token with the scopes of the route, and answers every other request itself.

    ::

        app = AccessTokenMiddleware(
            app,
            verifier=AsyncAccessTokenVerifier(base_url="https://id.example.com", audience="https://api.example.com"),
            routes={
                "GET /orders": "read:orders",
                "POST /orders": "write:orders",
                "GET /orders/{order_id}": "read:orders",
                "GET /organizations/{organization_id}/orders": OrganizationAware("read:orders"),
                "GET /me": Access.ANY_TOKEN,
                "GET /health": Access.PUBLIC,
            },
        )

    A route that is not declared is answered 404 or 405 (401 without a token), so a forgotten route is never open. Paths
    use the syntax of Starlette and Litestar. If several match, the most specific one wins, whatever their order. HEAD
    is treated as GET. For a WebSocket, write ``WEBSOCKET`` instead of a method; the token is checked when it is opened.

    The scopes of a token with the claim ``organization_id`` are valid in that organization only. Such a token is
    answered 403, unless the route is declared ``OrganizationAware``; its handler must then check that the request is
    about that organization.

    Handlers read the token with ``access_token_of(request.scope)``, or from ``scope["state"]["access_token"]``, which
    frameworks expose as ``request.state.access_token``.

    The token is read from the ``Authorization`` header only. Wrap the whole application in this middleware, and this
    middleware in the one that adds CORS headers, since error answers need them too.
    """

    def __init__(
        self, app: _Application, *, verifier: AsyncAccessTokenVerifier, routes: Mapping[str, Declared]
    ) -> None:
        """Wrap an application.

        Args:
            app: Any ASGI application.
            verifier: Configured with the issuer and the audience of this API.
            routes: What each route requires: scope tokens separated by single spaces, all of which the token must
                have; ``Access.ANY_TOKEN``; ``Access.PUBLIC``; or ``OrganizationAware`` around one of the first two.

        Raises:
            ValueError: A route is not of the form ``GET /path/{parameter}``, is declared twice, or its requirement is
                invalid.
            TypeError: The verifier is not asynchronous: it would block the event loop.
        """
        if not isinstance(verifier, AsyncAccessTokenVerifier):
            raise TypeError("verifier must be an AsyncAccessTokenVerifier")
        self._app = app
        self._verifier = verifier
        self._routes = Routes(routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass an authorized request on, and answer any other.

        Raises:
            ValueError: The type of the ASGI scope is unknown.
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
            raise ValueError(f"cannot judge a request of type {kind!r}")
        await self._app(scope, receive, send)

    async def _judge(self, scope: _Scope) -> AccessToken | _Refusal | None:
        """Return the token of an authorized request, None for a public route, or the refusal."""
        method: str | None = scope["method"] if scope["type"] == "http" else None
        path = _path_below_root(scope)
        required = self._routes.find(method, path)
        if required is Access.PUBLIC:
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
            return _unavailable(unavailable.retry_after)
        if required is None:
            return _no_such_route(self._routes.methods(path) if method else [])
        if token.organization_id is not None and not required.organization_aware:
            return _ONE_ORGANIZATION
        return token if required.scopes <= token.scopes else _insufficient_scope(required.scopes)


class _Refusal:
    """An error answer (RFC 6750 section 3); a JSON body repeats the challenge."""

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
        """Send the answer; on a WebSocket, fall back to closing it, which servers answer with 403."""
        prefix = ""
        if scope["type"] == "websocket":
            if "websocket.http.response" not in (scope.get("extensions") or {}):
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
                return
            prefix = "websocket."
        start = {"type": f"{prefix}http.response.start", "status": self._status, "headers": list(self._headers)}
        await send(start)
        await send({"type": f"{prefix}http.response.body", "body": self._body})


# RFC 6750 section 3: without a bearer token, the challenge must not contain an error code.
_NO_TOKEN: Final = _Refusal(401, "unauthenticated", "An access token is required.", challenge="Bearer")
_INVALID_TOKEN: Final = _Refusal(
    401, "invalid_token", "The access token is not accepted.", challenge='Bearer error="invalid_token"'
)

# The token is valid, so RFC 6750 section 3.1 forbids invalid_token; no scope is named because none would help.
_ONE_ORGANIZATION: Final = _Refusal(
    403,
    "insufficient_scope",
    "The access token is valid within one organization only.",
    challenge='Bearer error="insufficient_scope"',
)


def _invalid_request(description: str) -> _Refusal:
    return _Refusal(400, "invalid_request", description, challenge='Bearer error="invalid_request"')


_MALFORMED: Final = _invalid_request("The Authorization header is malformed.")
_REPEATED: Final = _invalid_request("The request has more than one Authorization header.")
_TWO_METHODS: Final = _invalid_request("The request has an access token in the header and in the query.")


def _insufficient_scope(required: frozenset[str]) -> _Refusal:
    scope = " ".join(sorted(required))
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    return _Refusal(403, "insufficient_scope", f"The access token must have the scope: {scope}", challenge=challenge)


def _no_such_route(methods: list[str]) -> _Refusal:
    if not methods:
        return _Refusal(404, "not_found", "No route is declared for this path.")
    allowed = [("Allow", ", ".join(methods))]
    return _Refusal(405, "method_not_allowed", "No route is declared for this path and method.", headers=allowed)


def _unavailable(retry_after: float | None) -> _Refusal:
    headers = [("Retry-After", str(max(1, math.ceil(retry_after or 1))))]
    return _Refusal(503, "temporarily_unavailable", "Access tokens cannot be verified right now.", headers=headers)


def _path_below_root(scope: _Scope) -> str:
    """Return the path that the framework's router sees; an undeclared one where routers disagree."""
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
