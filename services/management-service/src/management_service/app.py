"""Builds the service from its settings; no other module sees them."""

import asyncio
import functools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from litestar import Litestar, MediaType, Response, Router, get
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import ManagementAccess, UnrevokedTokens, require_management
from identity_common.access.revocations import RevocationReader
from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.http.openapi import CHANGES_DIRECTORY
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.changes import Changes
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.measures import measure_stores
from identity_common.stores.parents import Parents
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import Samples
from management_service.applications.routes import ApplicationController, SecretController
from management_service.applications.service import Applications
from management_service.authentication import Authentication
from management_service.bootstrap import Bootstrap, Credentials
from management_service.passwords.attempts import SignInAttempts
from management_service.passwords.checks import PasswordChecks
from management_service.passwords.hashing import Passwords
from management_service.republication import republication_steps
from management_service.resources.routes import ResourceController, ResourceScopeController
from management_service.resources.service import Resources
from management_service.roles.assignments import Assignments
from management_service.roles.routes import (
    ApplicationRoleController,
    RoleApplicationController,
    RoleController,
    RoleScopeController,
    RoleUserController,
    UserRoleController,
)
from management_service.roles.service import Roles
from management_service.schema import applications, resources, roles, users
from management_service.settings import Settings
from management_service.subject_tokens.routes import subject_token_route
from management_service.subject_tokens.service import SubjectTokens
from management_service.users.routes import UserController
from management_service.users.service import SEARCH_TIMEOUT_S, Users
from stead import AsyncAccessTokenVerifier

VERSIONS: Final = Path(__file__).parent / "migrations"
SWAGGER: Final = Path(__file__).parent / "openapi.json"
"""Generated, by ``make openapi``."""

_SEARCH_CONNECTIONS: Final = 4
_EVERYTHING_PUBLISHED: Final = 2**62
_BOOTSTRAP_LOCK: Final = text("SELECT pg_advisory_lock(hashtext('identity-bootstrap'))")  # until the session ends

_PARENTS: Final = {"user": users, "application": applications, "resource": resources, "role": roles}
_CONTROLLERS: Final = (
    UserController,
    UserRoleController,
    ApplicationController,
    SecretController,
    ApplicationRoleController,
    ResourceController,
    ResourceScopeController,
    RoleController,
    RoleScopeController,
    RoleUserController,
    RoleApplicationController,
)


@get("/status", operation_id="GetStatus", summary="Check that the service is up", status_code=204, sync_to_thread=False)
def status() -> Response[None]:
    """Answer 204, without authentication."""
    return Response(None)


@get("/swagger.json", operation_id="GetSwagger", summary="Read the OpenAPI document", sync_to_thread=False)
def swagger() -> Response[bytes]:
    """Answer the OpenAPI document of the three services together, without authentication."""
    return Response(_swagger(), media_type=MediaType.JSON)


@functools.cache
def _swagger() -> bytes:
    return SWAGGER.read_bytes()


def create_app(settings: Settings) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops the background work."""
    tenant_id = settings.tenant_id
    engine = _engine(settings)
    reader = _reader(engine)
    search_engine = create_database_engine(
        settings.database_url,
        service="management-service",
        pool_size=_SEARCH_CONNECTIONS,
        statement_timeout_s=SEARCH_TIMEOUT_S,
    )
    lookups = Lookups(settings.database_url, service="management-service")
    redis = connect_redis(settings.redis_url)
    commands = RedisCommands(redis)
    bus = Bus(settings.nats_url, service="management")

    published = Progress()
    changes = _changes(settings, engine, published)
    republication = Republication(changes, tenant_id=tenant_id, steps=republication_steps(tenant_id))
    relay = Relay(
        bus, settings.database_url, republication, source="management", tenant_id=tenant_id, published=published
    )
    passwords = Passwords(threads=settings.password_hashing_threads)
    attempts = SignInAttempts(
        commands,
        tenant_id=tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_account,
    )
    password_checks = PasswordChecks(bus, reader, passwords, attempts, tenant_id=tenant_id)
    tokens = _unrevoked_tokens(settings, commands)
    authentication = Authentication(tokens, lookups, tenant_id=tenant_id)
    subject_tokens = SubjectTokens(authentication, commands, tenant_id=tenant_id, ttl_s=settings.subject_token_ttl_s)
    assignments = Assignments(reader, changes, tenant_id=tenant_id)

    async def prepare() -> None:
        await changes.prepare()
        relay.start()
        password_checks.start()

    startup = Startup(engine, versions=VERSIONS, then=prepare)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        startup.start()
        bus.start()
        try:
            yield
        finally:
            await startup.stop()
            await password_checks.stop()
            await relay.stop()
            await bus.stop()
            passwords.close()
            await redis.aclose()
            lookups.stop()
            await search_engine.dispose()
            await engine.dispose()

    registry, samples = CollectorRegistry(), Samples()
    measure_stores(registry, samples, engine=engine, redis=redis, bus=bus)
    measure_outbox(registry, samples, reader, tenant_id=tenant_id)
    return create_service_app(
        title="Management API",
        route_handlers=[subject_token_route(subject_tokens), _api()],
        provide={
            "base_url": settings.base_url,
            "management_access": ManagementAccess(tokens.verify, authentication.is_live),
            "parents": Parents(lookups, _PARENTS, tenant_id=tenant_id),
            "users": Users(
                reader,
                changes,
                passwords,
                attempts,
                searcher=_reader(search_engine),
                assign_default_roles=assignments.assign_default_roles,
                tenant_id=tenant_id,
            ),
            "applications": Applications(reader, changes, tenant_id=tenant_id),
            "resources": _resources(settings, reader, changes),
            "roles": Roles(reader, changes, tenant_id=tenant_id),
            "assignments": assignments,
        },
        readiness=Readiness(startup),
        registry=registry,
        samples=samples,
        lifespan=lifespan,
    )


def migrate(settings: Settings) -> None:
    """Upgrade the database to the newest revision. Blocks, with an event loop of its own.

    Raises:
        OSError: The database does not answer.
        asyncpg.PostgresError: It refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def bootstrap(settings: Settings) -> Credentials:
    """Create the first client of the Management API and a new secret. Blocks, with an event loop of its own.

    Raises:
        CommandError: A role of another type has the name of the bootstrap role.
    """
    return asyncio.run(_bootstrap(settings))


def republish(settings: Settings) -> None:
    """Ask the active relay to publish the whole state again. Blocks, with an event loop of its own."""
    asyncio.run(_republish(settings))


async def _republish(settings: Settings) -> None:
    engine = _engine(settings)
    changes = _changes(settings, engine, Progress())
    try:
        await Republication(changes, tenant_id=settings.tenant_id, steps=()).request()
    finally:
        await engine.dispose()


async def _bootstrap(settings: Settings) -> Credentials:
    engine = _engine(settings)
    reader = _reader(engine)
    published = Progress()
    published.advance(_EVERYTHING_PUBLISHED)  # the running service's relay publishes; bootstrap does not wait for it
    changes = _changes(settings, engine, published)
    tenant_id = settings.tenant_id
    try:
        async with reader.connect() as one_at_a_time:
            await one_at_a_time.execute(_BOOTSTRAP_LOCK)
            await changes.prepare()
            return await Bootstrap(
                resources=_resources(settings, reader, changes),
                roles=Roles(reader, changes, tenant_id=tenant_id),
                applications=Applications(reader, changes, tenant_id=tenant_id),
                assignments=Assignments(reader, changes, tenant_id=tenant_id),
                management_api=settings.management_api_resource,
            ).run()
    finally:
        await engine.dispose()


def _engine(settings: Settings) -> AsyncEngine:
    return create_database_engine(
        settings.database_url, service="management-service", pool_size=settings.database_connections
    )


def _reader(engine: AsyncEngine) -> AsyncEngine:
    """Return the same pool for reads in autocommit mode, which saves BEGIN and ROLLBACK."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _resources(settings: Settings, reader: AsyncEngine, changes: Changes) -> Resources:
    return Resources(
        reader,
        changes,
        tenant_id=settings.tenant_id,
        management_api=settings.management_api_resource,
        urn_namespace=settings.urn_namespace,
        issuer=settings.issuer,
    )


def _changes(settings: Settings, engine: AsyncEngine, published: Progress) -> Changes:
    return Changes(engine, source="management", tenant_id=settings.tenant_id, published=published)


def _unrevoked_tokens(settings: Settings, commands: RedisCommands) -> UnrevokedTokens:
    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
    )
    return UnrevokedTokens(verifier, RevocationReader(commands, tenant_id=settings.tenant_id))


def _api() -> Router:
    guarded = Router("/", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS)
    return Router("/api", route_handlers=[status, swagger, guarded])
