"""Builds the service from its settings; no other module sees them."""

import functools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import httpx2 as httpx
from litestar import Litestar, Router
from prometheus_client import CollectorRegistry

from identity_common.access.management_api import Access, UnrevokedTokens, require_management
from identity_common.access.parents import Parents
from identity_common.access.revocations import RevocationReader
from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.http.openapi import CHANGES_DIRECTORY
from identity_common.http.routing import Service
from identity_common.lifetime import Lifetime
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.audit_stream_relay import AuditStreamRelay
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.changes import Changes
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.pages.cookies import Cookies
from identity_common.progress import Progress
from identity_common.sealing import SealingKeys
from identity_common.signed_values import SignedValues
from identity_common.stores import migrations
from identity_common.stores.address_limit import AddressLimit
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.lookups import Lookups
from identity_common.stores.measures import measure_stores
from identity_common.stores.reader import Reader, autocommit
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.telemetry.metrics import Samples, counter
from identity_common.wire.claims_function import SealedRequests, SealedVariables
from management_service import parts, schema
from management_service.api_reference.routes import reference_router, status, swagger_route
from management_service.applications.routes import ApplicationController, SecretController
from management_service.applications.service import Applications
from management_service.audit.reading.service import AuditTrail
from management_service.audit.routes import LogController, LogKeyController, audit_jwks
from management_service.audit.storing.ingestion import AuditIngestion
from management_service.audit.storing.lag import measure_lag
from management_service.audit.tree.head_keys import HeadKeys
from management_service.audit.tree.heads import Heads
from management_service.audit.tree.proofs import AuditProofs
from management_service.authentication import Authentication
from management_service.claims_function.routes import ClaimsFunctionController, ClaimsFunctionTestController
from management_service.claims_function.scripts import Scripts
from management_service.claims_function.service import ClaimsFunctions
from management_service.console.credentials import ConsoleCredentials
from management_service.console.pending import PENDING_TTL_S, PendingSignIns
from management_service.console.rendering import Look, Pages
from management_service.console.requests import ConsoleContext
from management_service.console.routes import console_router
from management_service.console.sessions import Sessions
from management_service.console.transport import CONSOLE_TIMEOUT_S, RoutedTransport
from management_service.impersonations.own_routes import OwnImpersonationController, readable_by_pages
from management_service.impersonations.register import ImpersonationRegister
from management_service.impersonations.revoking import EndRevocations
from management_service.impersonations.routes import (
    ImpersonationController,
    ImpersonationsController,
    UserImpersonationController,
)
from management_service.impersonations.service import Impersonations
from management_service.invitations.routes import InvitationController, accept
from management_service.invitations.service import Invitations
from management_service.memberships import Memberships
from management_service.passwords.checks import PasswordChecks
from management_service.passwords.hashing import Passwords
from management_service.republication import republication_steps
from management_service.resources.routes import ResourceController, ResourceScopeController
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
from management_service.subject_tokens.store import LOG as SUBJECT_TOKEN_LOG
from management_service.subject_tokens.store import SubjectTokenWriter
from management_service.users.routes import UserController
from management_service.users.service import SEARCH_TIMEOUT_S, Users
from stead import AsyncAccessTokenVerifier

VERSIONS: Final = Path(__file__).parent / "migrations"
SWAGGER: Final = Path(__file__).parent / "openapi.json"
"""Generated, by ``make openapi``."""

_SEARCH_CONNECTIONS: Final = 4

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


def create_app(settings: Settings) -> Litestar:
    """Return the ASGI app; its lifespan starts and stops everything that runs beside the requests."""
    registry, samples = CollectorRegistry(), Samples()
    connections = _Connections(settings)
    background = _Background(settings, connections, registry)
    _measure(settings, connections, registry, samples)
    tokens = _unrevoked_tokens(settings, connections)
    authentication = Authentication(connections.lookups, tenant_id=settings.tenant_id)
    return create_service_app(
        service="management",
        title="Management API",
        base_url=settings.base_url,
        route_handlers=[
            subject_token_route(
                _subject_tokens(settings, connections), tokens, authentication, trusted_proxies=settings.trusted_proxies
            ),
            *_api(settings),
            Router("/", opt=CHANGES_DIRECTORY, route_handlers=[OwnImpersonationController]),
            console_router(_console(settings, connections, registry)),
        ],
        provide={
            "base_url": settings.base_url,
            **_access(settings, tokens, authentication),
            **_use_cases(settings, connections, background),
        },
        readiness=Readiness(background.startup),
        registry=registry,
        samples=samples,
        lifespan=background.lifespan,
        cors=readable_by_pages,
    )


def migrate(settings: Settings) -> None:
    """Upgrade the database to the newest revision. Blocks; runs its own event loop.

    Raises:
        UnknownSchemaError: Newer code has migrated it.
        OSError: The database does not answer.
        asyncpg.PostgresError: It refuses.
    """
    migrations.migrate(settings.database_url, VERSIONS)


class _Connections:
    """Connections of the service; nothing connects before the lifespan starts."""

    def __init__(self, settings: Settings) -> None:
        self.engine = parts.engine(settings)
        self.reader = Reader(self.engine, service="management-service")
        self._search_engine = create_database_engine(
            settings.database_url,
            service="management-service",
            pool_size=_SEARCH_CONNECTIONS,
            statement_timeout_s=SEARCH_TIMEOUT_S,
        )
        self.searcher = autocommit(self._search_engine)
        self.lookups = Lookups(settings.database_url, service="management-service")
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.bus = Bus(settings.nats_url, service="management")
        self.console_http = httpx.AsyncClient(transport=_console_transport(settings), timeout=CONSOLE_TIMEOUT_S)

    def start(self) -> None:
        self.bus.start()

    async def stop(self) -> None:
        await self.bus.stop()
        await self.console_http.aclose()
        await self.redis.aclose()
        self.lookups.stop()
        await self._search_engine.dispose()
        await self.reader.dispose()


class _Background:
    """Background tasks, and the objects that requests share with them."""

    def __init__(self, settings: Settings, connections: _Connections, registry: CollectorRegistry) -> None:
        tenant_id, bus, commands = settings.tenant_id, connections.bus, connections.commands
        self._settings = settings
        self._connections = connections
        published = Progress()
        self.changes = parts.changes(settings, connections.engine, published)
        self.sealing = SealingKeys(settings.audit_head_keys)
        self.head_keys = HeadKeys(connections.reader, self.changes, self.sealing, tenant_id=tenant_id)
        self.claims_functions = _claims_functions(settings, connections, self.changes)
        self.passwords = Passwords(threads=settings.password_hashing_threads)
        self.attempts = parts.sign_in_attempts(settings, commands)
        republication = Republication(self.changes, tenant_id=tenant_id, steps=republication_steps(tenant_id))
        heads = Heads(
            bus,
            self.sealing,
            issuer=settings.base_url,
            tenant_id=tenant_id,
            refused=counter(
                registry, "audit_heads_refused", "Heads of the audit trail that were not signed: see the log."
            ),
        )
        self._relay = Relay(
            bus, settings.database_url, republication, source="management", tenant_id=tenant_id, published=published
        )
        self._audit_relay = AuditRelay(bus, settings.database_url, service="management", tenant_id=tenant_id)
        self._audit_ingestion = AuditIngestion(
            bus,
            settings.database_url,
            heads,
            tenant_id=tenant_id,
            retention_days=settings.audit_retention_days,
            skipped=counter(
                registry, "audit_entries_skipped", "Entries of the audit trail that could not be stored: see the log."
            ),
        )
        self._subject_token_relay = AuditStreamRelay(
            bus, commands, settings.database_url, log=SUBJECT_TOKEN_LOG, tenant_id=tenant_id
        )
        self._password_checks = PasswordChecks(
            connections.reader, self.passwords, self.attempts, tenant_id=tenant_id
        ).responder(bus)
        self.startup = Startup(connections.engine, versions=VERSIONS, then=self._start_workers)

    async def _start_workers(self, lifetime: Lifetime) -> None:
        """Start what needs the migrated database."""
        await self.changes.prepare()
        await self.claims_functions.renew_seals()
        # Earlier versions sealed the keys of heads with those of environment variables, which token-service knows.
        earlier = self._settings.environment_variable_keys
        await self.head_keys.renew_seals(SealingKeys((*self._settings.audit_head_keys, *earlier)))
        lifetime.start(
            self._relay, self._audit_relay, self._subject_token_relay, self._audit_ingestion, self._password_checks
        )

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        with closing(self.passwords):
            async with Lifetime() as lifetime:
                lifetime.start(self._connections, self.startup)
                yield


def _measure(settings: Settings, connections: _Connections, registry: CollectorRegistry, samples: Samples) -> None:
    tenant_id, reader, bus = settings.tenant_id, connections.reader, connections.bus
    measure_stores(registry, samples, engine=connections.engine, redis=connections.redis, bus=bus)
    measure_outbox(registry, samples, reader, tenant_id=tenant_id)
    audit_backlog = AuditBacklog(registry, samples, tenant_id=tenant_id)
    audit_backlog.measure_outbox("management", reader)
    audit_backlog.measure_stream(SUBJECT_TOKEN_LOG, connections.commands, limit=settings.audit_backlog)
    measure_lag(registry, samples, reader, bus, tenant_id=tenant_id)


def _unrevoked_tokens(settings: Settings, connections: _Connections) -> UnrevokedTokens:
    verifier = AsyncAccessTokenVerifier(
        issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
    )
    return UnrevokedTokens(verifier, RevocationReader(connections.commands, tenant_id=settings.tenant_id))


def _subject_tokens(settings: Settings, connections: _Connections) -> SubjectTokens:
    ttl_s = settings.subject_token_ttl_s
    store = SubjectTokenWriter(
        connections.commands, tenant_id=settings.tenant_id, ttl_s=ttl_s, backlog=settings.audit_backlog
    )
    return SubjectTokens(store, ttl_s=ttl_s, required_context=settings.require_context)


def _claims_functions(settings: Settings, connections: _Connections, changes: Changes) -> ClaimsFunctions:
    keys, tenant_id = SealingKeys(settings.environment_variable_keys), settings.tenant_id
    scripts = Scripts(connections.bus, SealedRequests(keys, tenant_id=tenant_id))
    variables = SealedVariables(keys, tenant_id=tenant_id)
    return ClaimsFunctions(connections.reader, changes, scripts, variables, tenant_id=tenant_id)


def _console(settings: Settings, connections: _Connections, registry: CollectorRegistry) -> ConsoleContext:
    begun = AddressLimit(
        connections.commands,
        "console-sign-ins",
        tenant_id=settings.tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=counter(registry, "throttled", "Attempts beyond a limit, by limit.", "limit"),
    )
    return ConsoleContext(
        base_url=settings.base_url,
        resource=settings.management_api_resource,
        trusted_proxies=settings.trusted_proxies,
        sessions=Sessions(connections.commands, tenant_id=settings.tenant_id),
        pending=PendingSignIns(connections.commands, tenant_id=settings.tenant_id),
        begun=begun,
        marks=SignedValues(settings.audit_head_keys, purpose=f"console cookie of {settings.tenant_id}"),
        credentials=ConsoleCredentials(Path(settings.console_credentials) if settings.console_credentials else None),
        cookies=Cookies(secure=settings.base_url.startswith("https:")),
        pages=Pages(Look(settings.console_name, settings.console_color, settings.console_logo_uri)),
        http=connections.console_http,
    )


def _console_transport(settings: Settings) -> RoutedTransport:
    addresses: dict[Service, str | None] = {
        "management": settings.management_url,
        "token": settings.token_url,
        "template": settings.template_url,
    }
    return RoutedTransport(settings.base_url, {name: address for name, address in addresses.items() if address})


def _api(settings: Settings) -> tuple[Router, ...]:
    """Return three routers, not one around them: Litestar copies every route once more for each router around it."""
    reference = reference_router(settings.base_url, management_api=settings.management_api_resource)
    open_to_all = (status, swagger_route(settings.base_url, SWAGGER), audit_jwks, reference, accept)
    return (
        Router("/api", route_handlers=open_to_all),
        Router("/api", guards=[require_management], opt=CHANGES_DIRECTORY, route_handlers=_CONTROLLERS),
        Router("/api", opt=CHANGES_DIRECTORY, route_handlers=[ImpersonationController]),
    )


def _access(settings: Settings, tokens: UnrevokedTokens, authentication: Authentication) -> Mapping[str, object]:
    """Return the dependencies of guards, by name."""
    return {
        "management_access": Access(tokens.verify, authentication.is_live, trusted_proxies=settings.trusted_proxies),
        "person_access": Access(
            functools.partial(tokens.verify, audience=f"{settings.issuer}/me"),
            authentication.is_live,
            trusted_proxies=settings.trusted_proxies,
        ),
    }


def _use_cases(settings: Settings, connections: _Connections, background: _Background) -> Mapping[str, object]:
    """Return the dependencies of handlers, by name."""
    tenant_id, reader, changes = settings.tenant_id, connections.reader, background.changes
    passwords = background.passwords
    administrators = parts.administrators(settings)
    assignments = Assignments(reader, changes, administrators, tenant_id=tenant_id)
    register = ImpersonationRegister(reader, tenant_id=tenant_id)
    users = Users(
        reader,
        changes,
        passwords,
        background.attempts,
        administrators,
        searcher=connections.searcher,
        assign_default_roles=assignments.assign_default_roles,
        tenant_id=tenant_id,
    )
    return {
        "parents": Parents(connections.lookups, _PARENTS, tenant_id=tenant_id),
        "users": users,
        "invitations": Invitations(reader, changes, users, passwords, tenant_id=tenant_id),
        "applications": Applications(reader, changes, tenant_id=tenant_id),
        "resources": parts.resources(settings, reader, changes),
        "roles": Roles(reader, changes, administrators, tenant_id=tenant_id),
        "assignments": assignments,
        "claims_functions": background.claims_functions,
        "impersonations": Impersonations(
            changes,
            EndRevocations(connections.redis, tenant_id=tenant_id, replicas=settings.redis_replicas),
            connections.commands,
            register,
            tenant_id=tenant_id,
        ),
        "impersonation_register": register,
        "memberships": Memberships(connections.bus, tenant_id=tenant_id),
        "audit_trail": AuditTrail(reader, tenant_id=tenant_id),
        "audit_proofs": AuditProofs(reader, background.sealing, tenant_id=tenant_id),
        "head_keys": background.head_keys,
    }
