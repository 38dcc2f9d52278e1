"""Who may call this service's part of ``/api``: callers of the Management API."""

from litestar.handlers import BaseRouteHandler

from identity_common.access.management_api import SCOPE_ALL, Connection, authenticate, unauthorized
from identity_common.http.api_errors import store_unavailable
from identity_common.oauth import OAuthError
from stead import AccessToken
from token_service.directory import Directory
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused


class ManagementAccess:
    """Judges callers with our own keys and the directory."""

    def __init__(self, directory: Directory, live_tokens: LiveTokens, *, management_api_resource: str) -> None:
        self._directory = directory
        self._live_tokens = live_tokens
        self._management_api_resource = management_api_resource

    async def require(self, connection: Connection) -> None:
        """Let a live caller with the scope ``all`` through.

        Raises:
            ApiError: 401, 403, 503.
        """
        await authenticate(connection.scope, self._verify, one_of=frozenset({SCOPE_ALL}))

    async def _verify(self, token: str) -> AccessToken:
        try:
            self._directory.require_current()
            live = await self._live_tokens.verify(token, audience=self._management_api_resource)
        except TokenRefused:
            raise unauthorized() from None
        except OAuthError:
            raise store_unavailable() from None
        return live.token


async def require_management(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: a live caller with the scope ``all``."""
    access: ManagementAccess = connection.app.state.management_access
    await access.require(connection)
