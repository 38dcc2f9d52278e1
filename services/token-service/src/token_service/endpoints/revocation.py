"""``POST /oidc/token/revocation`` (RFC 7009): a client revokes a token that it no longer needs."""

from typing import Final

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from identity_common.wire.events import ApplicationState
from token_service.authorizations import Authorizations, RefreshTokens
from token_service.authorizations.authorizations import EXPIRY_MARGIN_MS
from token_service.directory import Directory
from token_service.endpoints.raw_routes import answer_client
from token_service.grants import TokenRequest
from token_service.grants.client_authentication import METHODS, ClientAuthenticator
from token_service.grants.form import MAX_BYTES
from token_service.grants.oauth_errors import OAuthError, invalid_grant
from token_service.openapi.endpoints import REVOCATION_OPERATION, TokenForm
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused
from token_service.presented_tokens.revocations import Revocation, Revocations
from token_service.tokens.keys import SigningKeys

PATH: Final = "/oidc/token/revocation"
AUTHENTICATION_METHODS: Final = sorted(set[str]().union(*METHODS.values()))


class Revoker:
    """Revokes a client's own tokens; public clients identify themselves by ``client_id``."""

    def __init__(
        self,
        directory: Directory,
        keys: SigningKeys,
        authenticator: ClientAuthenticator,
        live_tokens: LiveTokens,
        refresh_tokens: RefreshTokens,
        authorizations: Authorizations,
        revocations: Revocations,
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._authenticator = authenticator
        self._live_tokens = live_tokens
        self._refresh_tokens = refresh_tokens
        self._authorizations = authorizations
        self._revocations = revocations

    async def revoke(self, request: TokenRequest) -> None:
        """Revoke a token; an unknown or invalid one is not an error.

        Source:
            RFC 7009 sections 2.1 (the hint may be ignored; another client's token is refused) and 2.2.

        Raises:
            OAuthError: ``invalid_client``, ``invalid_request``; ``invalid_grant`` for another client's token.
            StoreUnavailable: It may or may not be revoked; try again.
        """
        self._directory.require_current()
        self._keys.require_loaded()
        client = await self._authenticator.authenticate(request.credentials, address=request.audited.address)
        token = request.parameters.as_form(TokenForm).token
        if not await self._revoke_refresh_token(token, client):
            await self._revoke_access_token(token, client)

    async def _revoke_refresh_token(self, refresh_token: str, client: ApplicationState) -> bool:
        """Return whether the token is a refresh token; if so, revoke its family and their access tokens."""
        found = await self._refresh_tokens.find(refresh_token)
        if found is None:
            return False
        if found.authorization.application_id != client.id:
            raise _another_clients()
        await self._authorizations.end(found.authorization.id)
        return True

    async def _revoke_access_token(self, access_token: str, client: ApplicationState) -> None:
        try:
            # Longer ones than our verifiers accept are revoked, too: verifiers of others may accept them.
            token = self._live_tokens.read(access_token, max_chars=MAX_BYTES)
        except TokenRefused:
            return
        if token.client_id != client.id:
            raise _another_clients()
        await self._revocations.revoke(Revocation(token.id, int(token.expires_at) * 1000 + EXPIRY_MARGIN_MS))


def _another_clients() -> OAuthError:
    return invalid_grant("the token is another client's")


def revocation_endpoint(revoker: Revoker, *, trusted_proxies: int) -> ASGIRouteHandler:
    """Return the route.

    Args:
        revoker: Answers the requests.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    @asgi(PATH, copy_scope=False, opt=REVOCATION_OPERATION)
    async def revocation(scope: Scope, receive: Receive, send: Send) -> None:
        """Revoke a token."""
        await answer_client(scope, receive, send, revoker.revoke, trusted_proxies=trusted_proxies)

    return revocation
