"""``POST /oidc/token`` (RFC 6749 section 3.2): the hot path of the service."""

from typing import Final

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from token_service.endpoints.raw_routes import answer_client
from token_service.grants import Grants
from token_service.openapi.token import TOKEN_OPERATION

PATH: Final = "/oidc/token"


def token_endpoint(grants: Grants, *, trusted_proxies: int) -> ASGIRouteHandler:
    """Return the route of the token endpoint.

    Args:
        grants: Answers the requests.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    @asgi(PATH, copy_scope=False, opt=TOKEN_OPERATION)
    async def token(scope: Scope, receive: Receive, send: Send) -> None:
        """Issue tokens for one grant."""
        await answer_client(scope, receive, send, grants.issue, trusted_proxies=trusted_proxies)

    return token
