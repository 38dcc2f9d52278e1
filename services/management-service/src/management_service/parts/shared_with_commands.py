"""Parts shared by the service and its commands."""

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.outbox.changes import Changes
from identity_common.progress import Progress
from identity_common.stores.database import LONG_STATEMENT_S, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.redis import RedisCommands
from identity_common.wire.impersonations import AGGREGATE as IMPERSONATION
from management_service.administrators import Administrators
from management_service.attainable_scopes import AttainableScopes
from management_service.claims_function.service import AGGREGATE as CLAIMS_FUNCTION
from management_service.passwords.attempts import SignInAttempts
from management_service.resources.service import Resources
from management_service.settings import Settings


def engine(settings: Settings) -> AsyncEngine:
    """Return the service's connection pool."""
    return create_database_engine(
        settings.database_url, service="management-service", pool_size=settings.database_connections
    )


def engine_for_repairs(settings: Settings) -> AsyncEngine:
    """Return a connection whose statements may take long: they rewrite whole tables."""
    return create_database_engine(
        settings.database_url, service="management-service", pool_size=1, statement_timeout_s=LONG_STATEMENT_S
    )


def changes(settings: Settings, pool: AsyncEngine, published: Progress) -> Changes:
    """Return what opens transactions, and waits until their changes are published."""
    return Changes(
        pool,
        source="management",
        tenant_id=settings.tenant_id,
        published=published,
        may_return=(CLAIMS_FUNCTION, IMPERSONATION),
    )


def resources(settings: Settings, autocommit: AsyncEngine, lookups: Lookups, writes: Changes) -> Resources:
    """Return the use cases of resources, including the Management API's own resource."""
    return Resources(
        autocommit,
        lookups,
        writes,
        tenant_id=settings.tenant_id,
        management_api=settings.management_api_resource,
        urn_namespace=settings.urn_namespace,
        issuer=settings.issuer,
    )


def administrators(settings: Settings) -> Administrators:
    """Return what keeps the last administrator."""
    return Administrators(tenant_id=settings.tenant_id, management_api=settings.management_api_resource)


def attainable_scopes(settings: Settings) -> AttainableScopes:
    """Return what keeps callers from scopes of the Management API that they lack."""
    return AttainableScopes(tenant_id=settings.tenant_id, management_api=settings.management_api_resource)


def sign_in_attempts(settings: Settings, commands: RedisCommands) -> SignInAttempts:
    """Return the counter of sign-in attempts, with the limits from the settings."""
    return SignInAttempts(
        commands,
        tenant_id=settings.tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_account,
    )
