"""Callers of this service's part of ``/api``: tokens are verified with our own keys and judged by the directory."""

from identity_common.access.management_api import Verify, unauthorized
from stead import AccessToken
from token_service.directory import Directory
from token_service.presented_tokens.live_tokens import LiveTokens, TokenRefused


def api_verify(directory: Directory, live_tokens: LiveTokens, *, audience: str) -> Verify:
    """Return the function that verifies a token for an audience, revocation and liveness included."""

    async def verify(access_token: str) -> AccessToken:
        try:
            directory.require_current()
            live = await live_tokens.verify(access_token, audience=audience)
        except TokenRefused:
            raise unauthorized() from None
        return live.token

    return verify
