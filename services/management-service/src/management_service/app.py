"""Builds the service from its settings; no other module sees them."""

import asyncio
import functools
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2 as httpx
import msgspec
from litestar import Litestar, MediaType, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from nats.errors import Error as NatsError
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import SCOPE_ALL, ManagementAccess, UnrevokedTokens, require_management
from identity_common.access.revocations import RevocationReader
from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.http.openapi import CHANGES_DIRECTORY, at_address
from identity_common.http.routing import Service
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.audit_stream_relay import AuditStreamRelay
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.changes import Changes
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.outbox.restoration import StillRunningError, connected
from identity_common.pages.cookies import Cookies
from identity_common.progress import Progress
from identity_common.sealing import SealingKeys
from identity_common.serving import CommandError
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.measures import measure_stores
from identity_common.stores.parents import Parents
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import Samples, counter
from identity_common.wire.claims_function import SealedRequests, SealedVariables
from identity_common.wire.impersonations import AGGREGATE as IMPERSONATION
from management_service import schema
from management_service.api_reference.routes import reference_router
from management_service.applications.routes import ApplicationController, SecretController
from management_service.applications.service import Applications
from management_service.audit.head_keys import HeadKeys
from management_service.audit.heads import Heads
from management_service.audit.ingestion import AuditIngestion
from management_service.audit.lag import measure_lag
from management_service.audit.proofs import AuditProofs
from management_service.audit.routes import LogController, LogKeyController, audit_jwks
from management_service.audit.service import AuditTrail
from management_service.authentication import Authentication
from management_service.bootstrap import RESOURCE_NAME, Bootstrap, Credentials
from management_service.claims_function.routes import ClaimsFunctionController, ClaimsFunctionTestController
from management_service.claims_function.scripts import Scripts
from management_service.claims_function.service import AGGREGATE as CLAIMS_FUNCTION
from management_service.claims_function.service import ClaimsFunctions
from management_service.console.credentials import ConsoleCredentials
from management_service.console.rendering import Look, Pages
from management_service.console.routes import console_router
from management_service.console.sessions import Sessions
from management_service.console.transport import CONSOLE_TIMEOUT_S, RoutedTransport
from management_service.console.visits import ConsoleContext
from management_service.console_bootstrap import ConsoleBootstrap
from management_service.impersonations.own import OwnImpersonationController, PersonAccess, readable_by_pages
from management_service.impersonations.register import ImpersonationRegister
from management_service.impersonations.routes import (
    ImpersonationController,
    ImpersonationsController,
    UserImpersonationController,
)
from management_service.impersonations.service import Impersonations
from management_service.invitations.routes import InvitationController, accept
from management_service.invitations.service import Invitations
from management_service.kubernetes_secret import KubernetesSecret
from management_service.memberships import Memberships
from management_service.passwords.attempts import SignInAttempts
from management_service.passwords.checks import PasswordChecks
from management_service.passwords.hashing import Passwords
from management_service.republication import republication_steps
from management_service.resources.routes import ResourceController, ResourceScopeController
from management_service.resources.service import Resources
from management_service.restoration import restore
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
from management_service.settings import Settings
from management_service.subject_tokens.routes import subject_token_route
from management_service.subject_tokens.service import SubjectTokens
from management_service.subject_tokens.storing import LOG as SUBJECT_TOKEN_LOG
from management_service.subject_tokens.storing import SubjectTokenStore
from management_service.users.routes import UserController
from management_service.users.service import SEARCH_TIMEOUT_S, Users
from stead import AsyncAccessTokenVerifier

VERSIONS: Final = Path(__file__).parent / "migrations"
SWAGGER: Final = Path(__file__).parent / "openapi.json"
"""Generated, by ``make openapi``."""

_SEARCH_CONNECTIONS: Final = 4
_EVERYTHING_PUBLISHED: Final = 2**62
_BOOTSTRAP_LOCK: Final = text("SELECT pg_advisory_lock(hashtext('identity-bootstrap'))")  # until the session ends

_PARENTS: Final = {
    "user": schema.users,
    "application": schema.applications,
    "resource": schema.resources,
    "role": schema.roles,
}
_CONTROLLERS: Final = (
    UserController,
    UserRoleController,
    InvitationController,
    ApplicationController,
    SecretController,
    ApplicationRoleController,
    ResourceController,
    ResourceScopeController,
    RoleController,
    RoleScopeController,
    RoleUserController,
    RoleApplicationController,
    ImpersonationsController,
    UserImpersonationController,
    ClaimsFunctionTestController,
    ClaimsFunctionController,
    LogController,
    LogKeyController,
)


@get(
    "/status",
    operation_id="GetStatus",
    summary="Check that the service is up",
    tags=["Metadata"],
    status_code=204,
    sync_to_thread=False,
)
def status() -> Response[None]:
    """Answer 204, without authentication."""
    return Response(None)


def swagger_route(base_url: str) -> HTTPRouteHandler:
    """Return the route that serves the OpenAPI document of the three services together, with this address."""

    @functools.cache
    def content() -> bytes:
        return msgspec.json.encode(at_address(msgspec.json.decode(SWAGGER.read_bytes()), base_url))

    @get(
        "/swagger.json",
        operation_id="GetSwagger",
        summary="Read the OpenAPI document",
        tags=["Metadata"],
        sync_to_thread=False,
    )
    def swagger() -> Response[bytes]:
        """Answer the OpenAPI document of the three services together, without authentication."""
        return Response(content(), media_type=MediaType.JSON)

    return swagger


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
    audit_relay = AuditRelay(bus, settings.database_url, service="management", tenant_id=tenant_id)
    registry, samples = CollectorRegistry(), Samples()
    sealing = SealingKeys(settings.audit_head_keys)
    heads = Heads(
        bus,
        sealing,
        issuer=settings.base_url,
        tenant_id=tenant_id,
        refused=counter(registry, "audit_heads_refused", "Heads of the audit trail that were not signed: see the log."),
    )
    audit_ingestion = AuditIngestion(
        bus, settings.database_url, heads, tenant_id=tenant_id, retention_days=settings.audit_retention_days
    )
    passwords = Passwords(threads=settings.password_hashing_threads)
    attempts = _sign_in_attempts(settings, commands)
    password_checks = PasswordChecks(bus, reader, passwords, attempts, tenant_id=tenant_id)
    tokens = _unrevoked_tokens(settings, commands)
    authentication = Authentication(tokens, lookups, tenant_id=tenant_id)
    ttl_s = settings.subject_token_ttl_s
    store = SubjectTokenStore(commands, tenant_id=tenant_id, ttl_s=ttl_s, backlog=settings.audit_backlog)
    subject_tokens = SubjectTokens(
        authentication,
        store,
        ttl_s=ttl_s,
        required_context=settings.require_context,
        trusted_proxies=settings.trusted_proxies,
    )
    subject_token_relay = AuditStreamRelay(
        bus, commands, settings.database_url, log=SUBJECT_TOKEN_LOG, tenant_id=tenant_id
    )
    assignments = Assignments(reader, changes, tenant_id=tenant_id)

    users = Users(
        reader,
        changes,
        passwords,
        attempts,
        searcher=_reader(search_engine),
        assign_default_roles=assignments.assign_default_roles,
        tenant_id=tenant_id,
    )
    head_keys = HeadKeys(reader, changes, sealing, tenant_id=tenant_id)
    claims_functions = _claims_functions(settings, reader, changes, bus)
    console = _console(settings, commands)

    async def prepare() -> None:
        await changes.prepare()
        await claims_functions.renew_seals()
        # Earlier versions sealed the keys of heads with those of environment variables, which token-service knows.
        await head_keys.renew_seals(SealingKeys((*settings.audit_head_keys, *settings.environment_variable_keys)))
        relay.start()
        audit_relay.start()
        audit_ingestion.start()
        subject_token_relay.start()
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
            await audit_ingestion.stop()
            await subject_token_relay.stop()
            await audit_relay.stop()
            await relay.stop()
            await bus.stop()
            passwords.close()
            await console.http.aclose()
            await redis.aclose()
            lookups.stop()
            await search_engine.dispose()
            await engine.dispose()

    register = ImpersonationRegister(reader, tenant_id=tenant_id)
    measure_stores(registry, samples, engine=engine, redis=redis, bus=bus)
    measure_outbox(registry, samples, reader, tenant_id=tenant_id)
    audit_backlog = AuditBacklog(registry, samples, tenant_id=tenant_id)
    audit_backlog.measure_outbox("management", reader)
    audit_backlog.measure_stream(SUBJECT_TOKEN_LOG, commands, limit=settings.audit_backlog)
    measure_lag(registry, samples, reader, bus, tenant_id=tenant_id)
    return create_service_app(
        service="management",
        title="Management API",
        base_url=settings.base_url,
        route_handlers=[subject_token_route(subject_tokens), _api(settings), _own(), console_router(console)],
        provide={
            "base_url": settings.base_url,
            "management_access": ManagementAccess(
                tokens.verify, authentication.is_live, trusted_proxies=settings.trusted_proxies
            ),
            "person_access": PersonAccess(
                functools.partial(tokens.verify, audience=f"{settings.issuer}/me"),
                authentication.is_live,
                trusted_proxies=settings.trusted_proxies,
            ),
            "parents": Parents(lookups, _PARENTS, tenant_id=tenant_id),
            "users": users,
            "invitations": Invitations(reader, changes, users, passwords, tenant_id=tenant_id),
            "applications": Applications(reader, changes, tenant_id=tenant_id),
            "resources": _resources(settings, reader, changes),
            "roles": Roles(reader, changes, tenant_id=tenant_id),
            "assignments": assignments,
            "claims_functions": claims_functions,
            "impersonations": Impersonations(changes, commands, register, tenant_id=tenant_id),
            "impersonation_register": register,
            "memberships": Memberships(bus, tenant_id=tenant_id),
            "audit_trail": AuditTrail(reader, tenant_id=tenant_id),
            "audit_proofs": AuditProofs(reader, sealing, tenant_id=tenant_id),
            "head_keys": head_keys,
        },
        readiness=Readiness(startup),
        registry=registry,
        samples=samples,
        lifespan=lifespan,
        cors=readable_by_pages,
    )


def migrate(settings: Settings) -> None:
    """Upgrade the database to the newest revision. Blocks, with an event loop of its own.

    Raises:
        UnknownSchemaError: Newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError: It refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


def bootstrap(settings: Settings) -> Credentials:
    """Create the first client of the Management API and a new secret. Blocks, with an event loop of its own.

    Where the settings name a Secret of Kubernetes, write the credentials there, unless it has valid ones; where they
    name one for the console, create what the console needs, too.

    Raises:
        CommandError: A role of another type has the name of a bootstrap role; or a Secret cannot be written.
    """

    def secret(name: str) -> KubernetesSecret | None:
        return KubernetesSecret.in_this_pod(name, os.environ) if name else None

    return asyncio.run(
        _bootstrap(
            settings,
            secret(settings.bootstrap_secret_name),
            console=secret(settings.bootstrap_console_secret_name),
            administrator=secret(settings.bootstrap_administrator_secret_name),
        )
    )


def republish(settings: Settings) -> None:
    """Ask the active relay to publish the whole state again. Blocks, with an event loop of its own."""
    asyncio.run(_republish(settings))


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks, with an event loop of its own.

    Raises:
        CommandError: The service is running, or NATS does not answer.
    """
    try:
        asyncio.run(_restored(settings))
    except StillRunningError:
        raise CommandError("stop all replicas of management-service first") from None
    except NatsError as error:
        raise CommandError(f"NATS does not answer ({type(error).__name__})") from None


async def _restored(settings: Settings) -> None:
    engine, bus = _engine(settings), Bus(settings.nats_url, service="management")
    changes, tenant_id = _changes(settings, engine, Progress()), settings.tenant_id
    republication = Republication(changes, tenant_id=tenant_id, steps=republication_steps(tenant_id))
    try:
        async with connected(bus):
            await restore(changes, republication, bus, tenant_id=tenant_id)
    finally:
        await engine.dispose()


async def _republish(settings: Settings) -> None:
    engine = _engine(settings)
    changes = _changes(settings, engine, Progress())
    try:
        await Republication(changes, tenant_id=settings.tenant_id, steps=()).request()
    finally:
        await engine.dispose()


async def _bootstrap(
    settings: Settings,
    secret: KubernetesSecret | None,
    *,
    console: KubernetesSecret | None = None,
    administrator: KubernetesSecret | None = None,
) -> Credentials:
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
            earlier = Credentials.from_values(await secret.read()) if secret else None
            credentials = await Bootstrap(
                resources=_resources(settings, reader, changes),
                roles=Roles(reader, changes, tenant_id=tenant_id),
                applications=Applications(reader, changes, tenant_id=tenant_id),
                assignments=Assignments(reader, changes, tenant_id=tenant_id),
                management_api=settings.management_api_resource,
            ).run(earlier)
            if secret and credentials != earlier:
                await secret.write(msgspec.structs.asdict(credentials))
            if console:
                await _bootstrap_console(settings, reader, changes, console, administrator)
            return credentials
    finally:
        for each in (secret, console, administrator):
            if each:
                await each.aclose()
        await engine.dispose()


async def _bootstrap_console(
    settings: Settings,
    reader: AsyncEngine,
    changes: Changes,
    client: KubernetesSecret,
    administrator: KubernetesSecret | None,
) -> None:
    tenant_id = settings.tenant_id
    assignments = Assignments(reader, changes, tenant_id=tenant_id)
    passwords, redis = Passwords(threads=1), connect_redis(settings.redis_url)  # which is not needed to create users
    users = Users(
        reader,
        changes,
        passwords,
        _sign_in_attempts(settings, RedisCommands(redis)),
        searcher=reader,
        assign_default_roles=assignments.assign_default_roles,
        tenant_id=tenant_id,
    )
    console = ConsoleBootstrap(
        roles=Roles(reader, changes, tenant_id=tenant_id),
        applications=Applications(reader, changes, tenant_id=tenant_id),
        users=users,
        invitations=Invitations(reader, changes, users, passwords, tenant_id=tenant_id),
        assignments=assignments,
        base_url=settings.base_url,
    )
    try:
        await console.client(client)
        if administrator:
            scopes = await _resources(settings, reader, changes).ensure_management_api(RESOURCE_NAME, (SCOPE_ALL,))
            await console.administrator(administrator, scope_id=scopes[SCOPE_ALL].id)
    finally:
        passwords.close()
        await redis.aclose()


def _sign_in_attempts(settings: Settings, commands: RedisCommands) -> SignInAttempts:
    return SignInAttempts(
        commands,
        tenant_id=settings.tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_account,
    )


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
    return Changes(
        engine,
        source="management",
        tenant_id=settings.tenant_id,
        published=published,
        may_return=(CLAIMS_FUNCTION, IMPERSONATION),
    )


def _claims_functions(settings: Settings, reader: AsyncEngine, changes: Changes, bus: Bus) -> ClaimsFunctions:
    keys = SealingKeys(settings.environment_variable_keys)
    scripts = Scripts(bus, SealedRequests(keys, tenant_id=settings.tenant_id))
    variables = SealedVariables(keys, tenant_id=settings.tenant_id)
    return ClaimsFunctions(reader, changes, scripts, variables, tenant_id=settings.tenant_id)


def _console(settings: Settings, commands: RedisCommands) -> ConsoleContext:
    addresses: dict[Service, str | None] = {
        "management": settings.management_url,
        "token": settings.token_url,
        "template": settings.template_url,
    }
    transport = RoutedTransport(settings.base_url, {name: address for name, address in addresses.items() if address})
    return ConsoleContext(
        base_url=settings.base_url,
        resource=settings.management_api_resource,
        trusted_proxies=settings.trusted_proxies,
        sessions=Sessions(commands, tenant_id=settings.tenant_id),
        credentials=ConsoleCredentials(Path(settings.console_credentials) if settings.console_credentials else None),
        cookies=Cookies(secure=settings.base_url.startswith("https:")),
        pages=Pages(Look(settings.console_name, settings.console_color, settings.console_logo_uri)),
        http=httpx.AsyncClient(transport=transport, timeout=CONSOLE_TIMEOUT_S),
    )


def _unrevoked_tokens(settings: Settings, commands: RedisCommands) -> UnrevokedTokens:
    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
    )
    return UnrevokedTokens(verifier, RevocationReader(commands, tenant_id=settings.tenant_id))


def _api(settings: Settings) -> Router:
    guarded = Router("/", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS)
    by_minters = Router("/", opt=CHANGES_DIRECTORY, route_handlers=[ImpersonationController])
    reference = reference_router(settings.base_url, management_api=settings.management_api_resource)
    open_to_all = (status, swagger_route(settings.base_url), audit_jwks, reference, accept)
    return Router("/api", route_handlers=[*open_to_all, guarded, by_minters])


def _own() -> Router:
    return Router("/", opt=CHANGES_DIRECTORY, route_handlers=[OwnImpersonationController])
