"""``POST /oidc/token/introspection`` (RFC 7662): whether a token is active, and its claims."""

from typing import Final

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send
from msgspec import UNSET

from identity_common.clock import now_ms
from identity_common.wire.events import ApplicationState
from token_service.authorizations import RefreshTokens
from token_service.directory import Directory
from token_service.endpoints.raw_routes import answer_client
from token_service.grants import TokenRequest
from token_service.grants.client_authentication import METHODS, ClientAuthenticator
from token_service.grants.oauth_errors import invalid_client
from token_service.grants.waiting import WaitingRequests
from token_service.openapi.endpoints import INTROSPECTION_OPERATION, Introspection, TokenForm
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused
from token_service.presented_tokens.liveness import why_user_not_live
from token_service.tokens.keys import SigningKeys
from token_service.tokens.scopes import format_scope

PATH: Final = "/oidc/token/introspection"
AUTHENTICATION_METHODS: Final = sorted(set[str]().union(*METHODS.values()) - {"none"})

INACTIVE: Final = Introspection(active=False)


class Introspector:
    """Introspects tokens for confidential clients.

    First-party clients see any access token, third-party ones their own; a refresh token is visible to its owner only.
    """

    def __init__(
        self,
        directory: Directory,
        keys: SigningKeys,
        authenticator: ClientAuthenticator,
        live_tokens: LiveTokens,
        refresh_tokens: RefreshTokens,
        waiting: WaitingRequests,
        *,
        issuer: str,
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._authenticator = authenticator
        self._live_tokens = live_tokens
        self._refresh_tokens = refresh_tokens
        self._waiting = waiting
        self._issuer = issuer

    async def introspect(self, request: TokenRequest) -> Introspection:
        """Return what the client may see of a token; ``token_type_hint`` is ignored.

        Raises:
            OAuthError: ``invalid_client``, also for a public client (section 2.1); ``invalid_request``.
        """
        self._directory.require_current()
        self._keys.require_loaded()
        if request.credentials.method == "none":
            raise invalid_client()
        client = await self._authenticator.authenticate(request.credentials, address=request.audited.address)
        token = request.parameters.as_form(TokenForm).token
        if not self._directory.has_seen(request.awaited):
            with self._waiting.of(client.id):
                await self._directory.wait_for(request.awaited)
        return await self._of_refresh_token(token, client) or await self._of_access_token(token, client, request)

    async def _of_access_token(
        self, access_token: str, client: ApplicationState, request: TokenRequest
    ) -> Introspection:
        try:
            live = await self._live_tokens.verify(access_token, at_least=request.awaited)
        except TokenRefused:
            return INACTIVE
        token = live.token
        if client.is_third_party and token.client_id != client.id:
            return INACTIVE
        return Introspection(
            active=True,
            token_type="Bearer",  # noqa: S106 - a type, not a token
            client_id=token.client_id,
            sub=token.subject,
            aud=token.audience,
            iss=token.issuer,
            iat=int(token.issued_at),
            exp=int(token.expires_at),
            jti=token.id,
            scope=format_scope(token.scopes),
            act=token.actor or UNSET,
            gty=token.grant_type or UNSET,
            organization_id=token.organization_id or UNSET,
            auth_time=UNSET if token.auth_time is None else int(token.auth_time),
            amr=token.amr or UNSET,
            acr=token.acr or UNSET,
            actor_authentication=token.claims.get("actor_authentication") or UNSET,
        )

    async def _of_refresh_token(self, refresh_token: str, client: ApplicationState) -> Introspection | None:
        found = await self._refresh_tokens.find(refresh_token, application_id=client.id)
        if found is None or found.rotated_at is not None:
            return None
        authorization = found.authorization
        person = await self._directory.person(authorization.user_id, at_least={})
        over = self._directory.in_memory.connectors.why_over(
            authorization.authentication.provider, signed_in_at=authorization.auth_time, now=now_ms()
        )
        valid_since = authorization.authentication.valid_since
        if over is not None or why_user_not_live(person, issued_at_ms=valid_since) is not None:
            return None
        return Introspection(
            active=True,
            client_id=authorization.application_id,
            sub=authorization.user_id,
            iss=self._issuer,
            iat=found.issued_at // 1000,
            exp=found.expires_at // 1000,
            scope=format_scope(authorization.consented.everything()),
        )


def introspection_endpoint(introspector: Introspector, *, trusted_proxies: int) -> ASGIRouteHandler:
    """Return the route.

    Args:
        introspector: Answers the requests.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    @asgi(PATH, copy_scope=False, opt=INTROSPECTION_OPERATION)
    async def introspection(scope: Scope, receive: Receive, send: Send) -> None:
        """Introspect a token."""
        await answer_client(scope, receive, send, introspector.introspect, trusted_proxies=trusted_proxies)

    return introspection
