"""Parts shared by the service and its commands."""

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.outbox.changes import Changes
from identity_common.progress import Progress
from identity_common.stores.database import LONG_STATEMENT_S, create_database_engine
from template_service.settings import Settings


def engine(settings: Settings) -> AsyncEngine:
    """Return the service's connection pool."""
    return create_database_engine(
        settings.database_url, service="template-service", pool_size=settings.database_connections
    )


def engine_for_repairs(settings: Settings) -> AsyncEngine:
    """Return a connection whose statements may take long: they rewrite whole tables."""
    return create_database_engine(
        settings.database_url, service="template-service", pool_size=1, statement_timeout_s=LONG_STATEMENT_S
    )


def changes(settings: Settings, pool: AsyncEngine, published: Progress) -> Changes:
    """Return what opens transactions, and waits until their changes are published."""
    # A member that was removed from an organization may be added again.
    return Changes(pool, source="template", tenant_id=settings.tenant_id, published=published, may_return=("member",))
