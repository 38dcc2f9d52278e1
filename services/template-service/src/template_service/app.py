"""Builds the service from its settings, which no other module sees."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from litestar import Litestar, Router
from litestar.types import ControllerRouterHandler
from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import Access, UnrevokedTokens, require_management
from identity_common.access.parents import Parents
from identity_common.access.revocations import RevocationReader
from identity_common.bus.connection import Bus
from identity_common.bus.streams import published_revision
from identity_common.http.application import create_service_app
from identity_common.http.cors import Cors
from identity_common.http.health import Readiness
from identity_common.http.openapi import CHANGES_DIRECTORY
from identity_common.lifetime import Lifetime
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.changes import Changes
from identity_common.outbox.commands import SourceCommands
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.projection.catch_up import CATCH_UP_WAIT_S
from identity_common.projection.fresh_reads import FreshReads
from identity_common.serving import run_restoration
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.measures import measure_stores
from identity_common.stores.reader import Reader
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import Samples, gauge
from stead import AsyncAccessTokenVerifier
from template_service.authentication import LiveCallers
from template_service.document.routes import OrganizationTemplateController
from template_service.document.service import OrganizationTemplate
from template_service.fan_out.backlog import measure_fan_out
from template_service.fan_out.worker import FanOut
from template_service.management_events import ManagementEvents
from template_service.member_permissions.access import ReadAccess
from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.routes import readable_by_any_page, scopes_routes
from template_service.member_permissions.service import MemberPermissions
from template_service.member_permissions.waiting import ChangeListener, Waiters
from template_service.members import routes as members
from template_service.members.replies import member_responder
from template_service.members.service import Members
from template_service.organizations.routes import OrganizationController
from template_service.organizations.service import Organizations
from template_service.permissions.routes import OrganizationPermissionController
from template_service.permissions.service import OrganizationPermissions
from template_service.republication import WholeState
from template_service.restoration import restore
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


def create_app(settings: Settings, *, catch_up_wait_s: float = CATCH_UP_WAIT_S) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops everything that runs beside the requests.

    Args:
        settings: From the environment.
        catch_up_wait_s: How long a request with an unknown id waits to catch up with the bus before it is refused.
    """
    connections = _Connections(settings)
    background = _Background(settings, connections, catch_up_wait_s=catch_up_wait_s)
    tokens = _unrevoked_tokens(settings, connections)
    registry, samples = _measure(settings, connections, background)
    return create_service_app(
        service="template",
        title="Organization template",
        base_url=settings.base_url,
        route_handlers=[
            *scopes_routes(_member_permissions(settings, connections, background, tokens)),
            Router("/api", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS),
        ],
        provide=_provided(settings, connections, background, tokens),
        readiness=Readiness(background.startup, lambda: background.management_events.is_complete),
        registry=registry,
        samples=samples,
        lifespan=background.lifespan,
        cors=lambda app: Cors(app, readable_by_any_page, methods=b"GET"),
    )


class _Connections:
    """Connections of the service; nothing connects before the lifespan starts."""

    def __init__(self, settings: Settings) -> None:
        self.engine = _engine(settings)
        self.reader = Reader(self.engine, service="template-service")
        self.lookups = Lookups(settings.database_url, service="template-service")
        self.redis = connect_redis(settings.redis_url)
        self.bus = Bus(settings.nats_url, service="template")

    def start(self) -> None:
        self.bus.start()

    async def stop(self) -> None:
        await self.bus.stop()
        await self.redis.aclose()
        self.lookups.stop()
        await self.reader.dispose()


class _Background:
    """Background tasks."""

    def __init__(self, settings: Settings, connections: _Connections, *, catch_up_wait_s: float) -> None:
        tenant_id, bus, engine = settings.tenant_id, connections.bus, connections.engine
        self._connections = connections
        self.published = Progress()
        self.changes = _changes(settings, engine, self.published)
        self.management_events = ManagementEvents(bus, engine, self.changes, tenant_id=tenant_id)
        self.fresh_reads = FreshReads(
            bus,
            [self.management_events.freshness],
            tenant_id=tenant_id,
            sources=["management"],
            revision_wait_s=settings.revision_wait_s,
            catch_up_wait_s=catch_up_wait_s,
        )
        republication = Republication(self.changes, tenant_id=tenant_id, steps=WholeState(tenant_id).steps)
        self._relay = Relay(
            bus,
            settings.database_url,
            republication,
            source="template",
            tenant_id=tenant_id,
            published=self.published,
        )
        self._audit_relay = AuditRelay(bus, settings.database_url, service="template", tenant_id=tenant_id)
        self._fan_out = FanOut(self.changes, settings.database_url, tenant_id=tenant_id, published=self.published)
        self.waiters = Waiters()
        self._listener = ChangeListener(bus, self.waiters, tenant_id=tenant_id)
        self._member_replies = member_responder(bus, connections.reader, tenant_id=tenant_id)
        self.startup = Startup(engine, versions=VERSIONS, then=self._start_workers)

    async def _start_workers(self, lifetime: Lifetime) -> None:
        """Start what needs the migrated database."""
        await self.changes.prepare()
        lifetime.start(self._relay, self._audit_relay, self.management_events, self._fan_out, self._member_replies)

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        async with Lifetime() as lifetime:
            lifetime.start(self._connections, self.startup, self._listener)
            yield


def _unrevoked_tokens(settings: Settings, connections: _Connections) -> UnrevokedTokens:
    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
    )
    revocations = RevocationReader(RedisCommands(connections.redis), tenant_id=settings.tenant_id)
    return UnrevokedTokens(verifier, revocations)


def _member_permissions(
    settings: Settings, connections: _Connections, background: _Background, tokens: UnrevokedTokens
) -> MemberPermissions:
    access = ReadAccess(
        tokens,
        PermissionCache(connections.lookups, tenant_id=settings.tenant_id),
        background.fresh_reads,
        management_api=settings.management_api_resource,
        urn_namespace=settings.urn_namespace,
    )
    return MemberPermissions(
        connections.lookups,
        access,
        background.fresh_reads,
        background.published,
        background.waiters,
        tenant_id=settings.tenant_id,
        revision_wait_s=settings.revision_wait_s,
    )


def _provided(
    settings: Settings, connections: _Connections, background: _Background, tokens: UnrevokedTokens
) -> Mapping[str, object]:
    """Return the dependencies that handlers and guards take by name."""
    tenant_id, urn_namespace, management_api = (
        settings.tenant_id,
        settings.urn_namespace,
        settings.management_api_resource,
    )
    reader, lookups = connections.reader, connections.lookups
    changes, fresh_reads = background.changes, background.fresh_reads
    return {
        "base_url": settings.base_url,
        "tenant_id": tenant_id,
        "management_access": Access(
            tokens.verify,
            LiveCallers(lookups, fresh_reads, tenant_id=tenant_id).is_live,
            trusted_proxies=settings.trusted_proxies,
        ),
        "fresh_reads": fresh_reads,
        "parents": Parents(lookups, _PARENTS, tenant_id=tenant_id),
        "permissions": OrganizationPermissions(reader, changes, tenant_id=tenant_id, urn_namespace=urn_namespace),
        "roles": OrganizationRoles(reader, changes, fresh_reads, tenant_id=tenant_id, management_api=management_api),
        "template": OrganizationTemplate(
            reader,
            changes,
            fresh_reads,
            tenant_id=tenant_id,
            urn_namespace=urn_namespace,
            management_api=management_api,
        ),
        "organizations": Organizations(reader, changes, tenant_id=tenant_id),
        "members": Members(reader, lookups, changes, fresh_reads, tenant_id=tenant_id),
    }


def _measure(
    settings: Settings, connections: _Connections, background: _Background
) -> tuple[CollectorRegistry, Samples]:
    registry, samples = CollectorRegistry(), Samples()
    waiting = gauge(
        registry, "waiting_requests", "Number of requests that are held until the permissions of a member change."
    )
    waiting.set_function(lambda: float(len(background.waiters)))
    lag = gauge(
        registry,
        "directory_lag_revisions",
        "Published revisions of management-service that have not been applied yet.",
        *("store", "source"),
    )

    async def behind() -> list[float]:
        head = await published_revision(connections.bus.jetstream(), "management", settings.tenant_id)
        return [max(0.0, float(head - background.management_events.freshness.seen("management")))]

    samples.add([lag.labels("postgresql", "management")], behind)
    measure_stores(registry, samples, engine=connections.engine, redis=connections.redis, bus=connections.bus)
    measure_outbox(registry, samples, connections.reader, tenant_id=settings.tenant_id)
    AuditBacklog(registry, samples, tenant_id=settings.tenant_id).measure_outbox("template", connections.reader)
    measure_fan_out(registry, samples, connections.reader, tenant_id=settings.tenant_id)
    return registry, samples


def migrate(settings: Settings) -> None:
    """Migrate the database to the latest revision. Blocks; runs its own event loop.

    Raises:
        UnknownSchemaError: Newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError: The database refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def republish(settings: Settings) -> None:
    """Ask the service's active relay to publish the whole state again. Blocks; runs its own event loop."""
    asyncio.run(_commands(settings).republish())


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks; runs its own event loop.

    Raises:
        CommandError: The service is running, or NATS does not answer.
    """
    bus = Bus(settings.nats_url, service="template")
    run_restoration(_commands(settings).restore(bus, restore), service="template-service")


def _commands(settings: Settings) -> SourceCommands:
    engine, tenant_id = _engine(settings), settings.tenant_id
    changes = _changes(settings, engine, Progress())
    return SourceCommands(engine, changes, steps=WholeState(tenant_id).steps, tenant_id=tenant_id)


def _engine(settings: Settings) -> AsyncEngine:
    return create_database_engine(
        settings.database_url, service="template-service", pool_size=settings.database_connections
    )


def _changes(settings: Settings, engine: AsyncEngine, published: Progress) -> Changes:
    # A member that was removed from an organization may be added again.
    return Changes(engine, source="template", tenant_id=settings.tenant_id, published=published, may_return=("member",))
