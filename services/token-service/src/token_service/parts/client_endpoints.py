"""The endpoints that clients call under ``/oidc``."""

from litestar.handlers import ASGIRouteHandler

from token_service.endpoints.introspection import Introspector, introspection_endpoint
from token_service.endpoints.not_valid import NotValidEndpoints, not_valid_endpoints
from token_service.endpoints.revocation import Revoker, revocation_endpoint
from token_service.endpoints.token import token_endpoint
from token_service.endpoints.userinfo import Userinfo, userinfo_endpoint
from token_service.grants import Grants
from token_service.parts.shared import Shared
from token_service.settings import Settings


def client_endpoints(settings: Settings, shared: Shared, grants: Grants) -> list[ASGIRouteHandler]:
    """Return the endpoints that clients call under ``/oidc``."""
    introspector = Introspector(
        shared.directory,
        shared.keys,
        shared.authenticator,
        shared.live_tokens,
        shared.refresh_tokens,
        shared.waiting,
        issuer=settings.issuer,
    )
    revoker = Revoker(
        shared.directory,
        shared.keys,
        shared.authenticator,
        shared.live_tokens,
        shared.refresh_tokens,
        shared.authorizations,
        shared.revocations,
    )
    userinfo = Userinfo(
        shared.live_tokens, shared.user_claims, shared.consents, userinfo_audience=shared.live_tokens.userinfo_audience
    )
    return [
        token_endpoint(grants, trusted_proxies=settings.trusted_proxies),
        introspection_endpoint(introspector, trusted_proxies=settings.trusted_proxies),
        revocation_endpoint(revoker, trusted_proxies=settings.trusted_proxies),
        userinfo_endpoint(userinfo),
        *not_valid_endpoints(
            NotValidEndpoints(
                shared.directory,
                shared.authenticator,
                shared.feed.keys,
                shared.feed.snapshots,
                shared.feed.tail,
                is_public=settings.not_valid_feed_public,
                admits_third_party=settings.not_valid_feed_third_party,
                trusted_proxies=settings.trusted_proxies,
            )
        ),
    ]
