"""Builds the token service from its parts (``token_service.parts``)."""

from pathlib import Path
from typing import Final

from litestar import Litestar

from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.projection.catch_up import CATCH_UP_WAIT_S
from identity_common.serving import run_restoration
from identity_common.stores import migrations
from identity_common.stores.database import LONG_STATEMENT_S, create_database_engine
from identity_common.stores.redis import connect_redis
from token_service.endpoints.consents import ConsentController, OwnConsentController
from token_service.endpoints.cors import Cors
from token_service.endpoints.feed_keys import NotValidKeyController
from token_service.endpoints.keys import PrivateKeyController
from token_service.endpoints.metadata import JWKS_PATH, metadata_endpoints
from token_service.endpoints.metadata import PREFIXES as METADATA_PREFIXES
from token_service.endpoints.revocation import PATH as REVOCATION_PATH
from token_service.endpoints.sessions import OwnSessionController, SessionController
from token_service.endpoints.token import PATH as TOKEN_PATH
from token_service.endpoints.userinfo import PATH as USERINFO_PATH
from token_service.parts.access import access
from token_service.parts.client_endpoints import client_endpoints
from token_service.parts.grants import token_grants
from token_service.parts.shared import Shared
from token_service.parts.sign_in import sign_in_pages
from token_service.restoration import restore
from token_service.settings import Settings

VERSIONS: Final = Path(__file__).parent / "migrations"


def create_app(settings: Settings, *, catch_up_wait_s: float = CATCH_UP_WAIT_S) -> Litestar:
    """Return the app; its lifespan starts and stops everything that runs in the background.

    Args:
        settings: From the environment.
        catch_up_wait_s: How long a request with an unknown id waits to catch up with the bus before it is refused.
    """
    shared = Shared(settings, versions=VERSIONS, catch_up_wait_s=catch_up_wait_s)
    grants = token_grants(settings, shared)
    return create_service_app(
        service="token",
        title="Token service",
        base_url=settings.base_url,
        route_handlers=[
            *client_endpoints(settings, shared, grants),
            *sign_in_pages(settings, shared),
            PrivateKeyController,
            NotValidKeyController,
            ConsentController,
            OwnConsentController,
            SessionController,
            OwnSessionController,
            *metadata_endpoints(
                issuer=settings.issuer,
                urn_namespace=settings.urn_namespace,
                grant_types=grants.grant_types,
                ring=lambda: shared.keys.ring if shared.keys.is_loaded else None,
            ),
        ],
        provide={
            "authorizations": shared.authorizations,
            "base_url": settings.base_url,
            "consents": shared.consents,
            "directory": shared.directory,
            "feed_keys": shared.feed.keys,
            "keys": shared.keys,
            "session_ends": shared.session_ends,
            "sessions": shared.sessions,
            "tenant_id": settings.tenant_id,
            **access(settings, shared),
        },
        readiness=Readiness(
            lambda: shared.keys.is_loaded,
            lambda: shared.directory.is_loaded,
            lambda: shared.ended_impersonations.is_loaded,
        ),
        registry=shared.metrics.registry,
        samples=shared.metrics.samples,
        lifespan=shared.lifespan,
        cors=lambda whole: Cors(
            whole,
            metadata_prefixes=METADATA_PREFIXES,
            public_paths=frozenset({JWKS_PATH, USERINFO_PATH}),
            registered_paths=frozenset({TOKEN_PATH, REVOCATION_PATH}),
            is_registered=shared.directory.in_memory.is_registered_origin,
        ),
    )


def migrate(settings: Settings) -> None:
    """Migrate this service's database to the newest revision; blocks."""
    migrations.migrate(settings.database_url, VERSIONS)


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks; runs its own event loop.

    Raises:
        CommandError: The service is running, or Redis does not answer.
    """
    run_restoration(_restored(settings), service="token-service")


async def _restored(settings: Settings) -> None:
    engine = create_database_engine(
        settings.database_url, service="token-service", pool_size=1, statement_timeout_s=LONG_STATEMENT_S
    )
    redis = connect_redis(settings.redis_url)
    try:
        await restore(engine, redis, tenant_id=settings.tenant_id)
    finally:
        await redis.aclose()
        await engine.dispose()
