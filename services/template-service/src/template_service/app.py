"""Builds the service out of its settings; the only module that sees them."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from litestar import Litestar, Router
from litestar.types import ControllerRouterHandler, HTTPScope
from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.cors import ANY_PAGE, Cors, Headers
from identity_common.http.health import Readiness
from identity_common.http.openapi import CHANGES_DIRECTORY
from identity_common.outbox.changes import Changes
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.parents import Parents
from identity_common.stores.redis import RedisCommands, connect_redis
from stead import AsyncAccessTokenVerifier
from template_service.authentication import Authentication, require_management
from template_service.document.routes import OrganizationTemplateController
from template_service.document.service import OrganizationTemplate
from template_service.fan_out.worker import FanOut
from template_service.known.freshness import Directory
from template_service.management_events import Projection
from template_service.member_permissions.access import Readers
from template_service.member_permissions.routes import list_application_scopes, list_user_scopes
from template_service.member_permissions.service import MemberPermissions
from template_service.member_permissions.unchanged import UnchangedPolls
from template_service.member_permissions.waiting import ChangeListener, Waiters
from template_service.members import routes as members
from template_service.members.service import Members
from template_service.organizations.routes import OrganizationController
from template_service.organizations.service import Organizations
from template_service.permissions.routes import OrganizationPermissionController
from template_service.permissions.service import OrganizationPermissions
from template_service.republication import WholeState
from template_service.roles.routes import (
    OrganizationRoleController,
    OrganizationRolePermissionController,
    OrganizationRoleScopeController,
)
from template_service.roles.service import OrganizationRoles
from template_service.schema import known_applications, known_users, organizations, permissions, roles
from template_service.settings import Settings

VERSIONS: Final = Path(__file__).parent / "migrations"

_PARENTS: Final = {
    "permission": permissions,
    "role": roles,
    "organization": organizations,
    "user": known_users,
    "application": known_applications,
}
_CONTROLLERS: Final[tuple[ControllerRouterHandler, ...]] = (
    OrganizationPermissionController,
    OrganizationRoleController,
    OrganizationRolePermissionController,
    OrganizationRoleScopeController,
    OrganizationTemplateController,
    OrganizationController,
    *members.CONTROLLERS,
)

_OF_ANY_PAGE: Final = re.compile("/api/organizations/[^/]+/users/[^/]+/scopes/?")


def create_app(settings: Settings) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops everything that runs beside the requests."""
    tenant_id = settings.tenant_id
    engine = _engine(settings)
    # The same pool for reading: a statement is its own transaction, and costs no BEGIN and ROLLBACK.
    reader = engine.execution_options(isolation_level="AUTOCOMMIT")
    lookups = Lookups(settings.database_url, service="template-service")
    published = Progress()
    changes = _changes(settings, engine, published)
    bus = Bus(settings.nats_url, service="template")
    projection = Projection(bus, engine, changes, tenant_id=tenant_id)
    directory = Directory(
        bus,
        projection.seen,
        tenant_id=tenant_id,
        revision_wait_s=settings.revision_wait_s,
        catch_up_wait_s=settings.catch_up_wait_s,
    )
    republication = Republication(changes, tenant_id=tenant_id, steps=WholeState(tenant_id).steps)
    relay = Relay(
        bus, settings.database_url, republication, source="template", tenant_id=tenant_id, published=published
    )
    fan_out = FanOut(changes, settings.database_url, tenant_id=tenant_id, published=published)

    waiters = Waiters()
    listener = ChangeListener(bus, waiters, tenant_id=tenant_id)

    async def prepare() -> None:
        await changes.prepare()
        relay.start()
        projection.start()
        fan_out.start()

    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
    )
    redis = connect_redis(settings.redis_url)
    tokens = UnrevokedTokens(verifier, RevocationReader(RedisCommands(redis), tenant_id=tenant_id))
    readers = Readers(tokens, management_api=settings.management_api_resource, urn_namespace=settings.urn_namespace)
    member_permissions = MemberPermissions(
        lookups,
        directory,
        published,
        waiters,
        tenant_id=tenant_id,
        revision_wait_s=settings.revision_wait_s,
    )
    startup = Startup(engine, versions=VERSIONS, then=prepare)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        startup.start()
        bus.start()
        listener.start()
        try:
            yield
        finally:
            await listener.stop()
            await startup.stop()
            await fan_out.stop()
            await projection.stop()
            await relay.stop()
            await bus.stop()
            await redis.aclose()
            lookups.stop()
            await engine.dispose()

    registry = CollectorRegistry()
    waiting = Gauge("waiting_requests", "Requests that wait for a change.", registry=registry)
    waiting.set_function(lambda: float(len(waiters)))
    return create_service_app(
        title="Organization template",
        route_handlers=[
            Router("/api", route_handlers=[list_user_scopes, list_application_scopes]),
            Router("/api", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS),
        ],
        provide={
            "base_url": settings.base_url,
            "authentication": Authentication(tokens, lookups, directory, tenant_id=tenant_id),
            "directory": directory,
            "parents": Parents(lookups, _PARENTS, tenant_id=tenant_id),
            "tenant_id": tenant_id,
            "permissions": OrganizationPermissions(
                reader, changes, tenant_id=tenant_id, urn_namespace=settings.urn_namespace
            ),
            "roles": OrganizationRoles(
                reader,
                changes,
                directory,
                tenant_id=tenant_id,
                management_api=settings.management_api_resource,
            ),
            "template": OrganizationTemplate(
                reader,
                changes,
                directory,
                tenant_id=tenant_id,
                urn_namespace=settings.urn_namespace,
                management_api=settings.management_api_resource,
            ),
            "organizations": Organizations(reader, changes, tenant_id=tenant_id),
            "members": Members(reader, lookups, changes, directory, tenant_id=tenant_id),
            "readers": readers,
            "member_permissions": member_permissions,
        },
        readiness=Readiness(startup, lambda: projection.is_complete),
        registry=registry,
        lifespan=lifespan,
        before_the_router=lambda app: UnchangedPolls(app, readers, member_permissions),
        cors=lambda whole: Cors(whole, _permission, methods=b"GET"),
    )


def _permission(request: HTTPScope, _: bytes | None) -> Headers | None:
    """Every page may read what a user may do, with the user's own token: it is an endpoint of programs in browsers."""
    return ANY_PAGE if _OF_ANY_PAGE.fullmatch(request["path"]) else None


def migrate(settings: Settings) -> None:
    """Bring the database to the newest revision. Blocks, with an event loop of its own.

    Raises:
        OSError: When the database does not answer.
        asyncpg.PostgresError: When it refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def republish(settings: Settings) -> None:
    """Ask the service's active relay to send the whole state to the bus again. Blocks, with a loop of its own."""
    asyncio.run(_republish(settings))


async def _republish(settings: Settings) -> None:
    engine = _engine(settings)
    try:
        await Republication(_changes(settings, engine, Progress()), tenant_id=settings.tenant_id, steps=()).request()
    finally:
        await engine.dispose()


def _engine(settings: Settings) -> AsyncEngine:
    return create_database_engine(
        settings.database_url, service="template-service", pool_size=settings.database_connections
    )


def _changes(settings: Settings, engine: AsyncEngine, published: Progress) -> Changes:
    # Whoever was removed from an organization may be added again.
    return Changes(engine, source="template", tenant_id=settings.tenant_id, published=published, may_return=("member",))
