"""ASGI middleware that lets a request through only if its access token has the scopes that the route requires.

Owns which request needs which token. Does not own the rules for tokens (``access_tokens``), the error responses
(``_bearer``) or the route table (``_routes``). Independent of any framework.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote_plus

from stead.errors import StepUpRequired, TokenInvalid, Unavailable
from stead.verify.access_tokens import AccessToken
from stead.verify.bearer import (
    INVALID_TOKEN,
    ONE_ORGANIZATION,
    Refusal,
    bearer_token,
    insufficient_scope,
    invalid_request,
    step_up,
    unavailable,
)
from stead.verify.routes import Access, Declared, OrganizationAware, Requires, Routes
from stead.verify.step_up import SignInDemand
from stead.verify.verifiers import AsyncAccessTokenVerifier

__all__ = ["Access", "AccessTokenMiddleware", "OrganizationAware", "Requires", "access_token_of"]

_log = logging.getLogger("stead")

# Frameworks name these types differently, so the interface accepts any.
_Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
_Scope: TypeAlias = MutableMapping[str, Any]

_STATE_KEY: Final = "access_token"


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

    A route that is declared ``Requires`` needs a recent or a strong sign-in of the user besides.

    Handlers read the token with ``access_token_of(request.scope)``, or from ``scope["state"]["access_token"]``, which
    frameworks expose as ``request.state.access_token``.

    The token is read from the ``Authorization`` header only. Wrap the whole application in this middleware, and this
    middleware in the one that adds CORS headers, since error responses need them too.
    """

    def __init__(
        self, app: _Application, *, verifier: AsyncAccessTokenVerifier, routes: Mapping[str, Declared]
    ) -> None:
        """Wrap an application.

        Args:
            app: Any ASGI application.
            verifier: Configured with the issuer and the audience of this API.
            routes: What each route requires: scope tokens separated by single spaces, all of which the token must
                have; ``Access.ANY_TOKEN``; ``Access.PUBLIC``; or ``OrganizationAware`` or ``Requires`` around one of
                the first two, or ``Requires`` around ``OrganizationAware``.

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
            if isinstance(judged, Refusal):
                await judged.answer(scope, send)
                return
            if judged is not None:
                scope = {**scope, "state": {**scope.get("state", {}), _STATE_KEY: judged}}
        elif kind != "lifespan":
            raise ValueError(f"cannot judge a request of type {kind!r}")
        await self._app(scope, receive, send)

    async def _judge(self, scope: _Scope) -> AccessToken | Refusal | None:
        """Return the token of an authorized request, None for a public route, or the refusal."""
        method: str | None = scope["method"] if scope["type"] == "http" else None
        path = _path_below_root(scope)
        required = self._routes.find(method, path)
        if required is Access.PUBLIC:
            return None
        candidate = bearer_token(scope["headers"])
        if isinstance(candidate, Refusal):
            return candidate
        if _names_a_token(scope.get("query_string", b"")):
            return _TWO_METHODS
        try:
            token = await self._verifier.verify(candidate, organization_aware=True)
        except TokenInvalid as invalid:
            _log.debug("an access token was refused: %s", invalid.reason)
            return INVALID_TOKEN
        except Unavailable as outage:
            return unavailable(outage.retry_after)
        if required is None:
            return _no_such_route(self._routes.methods(path) if method else [])
        if token.organization_id is not None and not required.organization_aware:
            return ONE_ORGANIZATION
        if not required.scopes <= token.scopes:
            return insufficient_scope(required.scopes)
        return token if required.sign_in is None else self._signed_in(token, required.sign_in)

    def _signed_in(self, token: AccessToken, demand: SignInDemand) -> AccessToken | Refusal:
        try:
            self._verifier.require_sign_in(
                token, max_age_s=demand.max_age_s, acr=demand.acr, accepts_actor=demand.accepts_actor
            )
        except StepUpRequired as required:
            return step_up(required)
        return token


_TWO_METHODS: Final = invalid_request("The request has an access token in the header and in the query.")


def _no_such_route(methods: list[str]) -> Refusal:
    if not methods:
        return Refusal(404, "not_found", "No route is declared for this path.")
    allowed = [("Allow", ", ".join(methods))]
    return Refusal(405, "method_not_allowed", "No route is declared for this path and method.", headers=allowed)


def _path_below_root(scope: _Scope) -> str:
    """Return the path that the framework's router sees; empty, which no route matches, where routers disagree."""
    path: str = scope["path"]
    root: str = scope.get("root_path") or ""
    if not root:
        return path
    if path == root:
        return "/"
    return path[len(root) :] if path.startswith(f"{root}/") else ""


def _names_a_token(query: bytes) -> bool:
    return any(
        unquote_plus(parameter.partition("=")[0]) == "access_token" for parameter in query.decode("latin-1").split("&")
    )
