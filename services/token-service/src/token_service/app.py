"""Builds the token service: the only module that reads the settings and wires the parts together."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from litestar import Litestar
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.management_api import Access
from identity_common.bus.connection import Bus
from identity_common.http.application import create_service_app
from identity_common.http.health import Readiness
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.audit_stream_relay import Attempts, AuditStreamRelay
from identity_common.sealing import SealingKeys
from identity_common.serving import run_restoration
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.eviction import EvictionWatch
from identity_common.stores.measures import measure_stores
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.claims_function import SealedRequests, SealedVariables
from token_service.audit import TokenAudit
from token_service.audit.token_requests import LOG, TAKEN, UNKNOWN
from token_service.audit.writes import WRITES
from token_service.authorizations import Authorizations, Codes, Consents, RefreshTokens
from token_service.authorizations.forgetting import Forgetting
from token_service.authorizations.third_parties import ThirdParties
from token_service.claims_function import CustomClaims
from token_service.claims_function.answers import ClaimsFunctionAnswers
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.on_demand import WorkersOnDemand
from token_service.claims_function.recordings import Recordings
from token_service.claims_function.sandbox import ClaimsWorkers, Limits, close_memory_to_others
from token_service.directory import Directory, InMemoryDirectory, InRedisDirectory
from token_service.directory.freshness import Freshness
from token_service.endpoints.consents import ConsentController
from token_service.endpoints.cors import Cors
from token_service.endpoints.feed_keys import NotValidKeyController
from token_service.endpoints.introspection import Introspector, introspection_endpoint
from token_service.endpoints.keys import PrivateKeyController
from token_service.endpoints.management_access import management_verify
from token_service.endpoints.metadata import JWKS_PATH, metadata_endpoints
from token_service.endpoints.metadata import PREFIXES as METADATA_PREFIXES
from token_service.endpoints.not_valid import NotValidEndpoints, not_valid_endpoints
from token_service.endpoints.revocation import PATH as REVOCATION_PATH
from token_service.endpoints.revocation import Revoker, revocation_endpoint
from token_service.endpoints.token import PATH as TOKEN_PATH
from token_service.endpoints.token import token_endpoint
from token_service.endpoints.userinfo import PATH as USERINFO_PATH
from token_service.endpoints.userinfo import Userinfo, userinfo_endpoint
from token_service.grants import Grant, Grants
from token_service.grants.authorization_code import AuthorizationCodeGrant
from token_service.grants.client_authentication import ClientAuthenticator
from token_service.grants.client_credentials import ClientCredentialsGrant
from token_service.grants.refresh_token import RefreshTokenGrant
from token_service.grants.targets import ORGANIZATION_TOKEN_TTL_S, USERINFO_TOKEN_TTL_S, Targets
from token_service.grants.token_exchange import TokenExchangeGrant
from token_service.grants.user_tokens import UserTokens
from token_service.metrics import TokenServiceMetrics
from token_service.not_valid import FeedKeys, Sequencer, Snapshots, Tail
from token_service.presented_tokens.actor_tokens import ActorTokens
from token_service.presented_tokens.ended_impersonations import EndedImpersonations
from token_service.presented_tokens.live_tokens import LiveTokens
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_store import SubjectTokenStore
from token_service.presented_tokens.subject_tokens import SubjectTokens
from token_service.restoration import restore
from token_service.settings import Settings
from token_service.sign_in.devices import Devices
from token_service.sign_in.flow import SignInFlow
from token_service.sign_in.password_sign_in import PasswordSignIn
from token_service.sign_in.passwords import PasswordCheck
from token_service.sign_in.pending import PENDING_TTL_S, PendingAuthorizations
from token_service.sign_in.routes import AuthorizationPages
from token_service.sign_in.sessions import Sessions
from token_service.sign_in.sign_out import EndSession
from token_service.sign_in.throttle import AddressLimit
from token_service.tokens.id_token_hints import IdTokenHints
from token_service.tokens.issuer import Issuer
from token_service.tokens.keys import SigningKeys
from token_service.tokens.signing import SigningAlgorithm
from token_service.tokens.user_claims import UserClaims

VERSIONS: Final = Path(__file__).parent / "migrations"


def migrate(settings: Settings) -> None:
    """Migrate this service's database to the newest revision; blocks."""
    migrations.migrate(settings.database_url, VERSIONS)


def restored(settings: Settings) -> None:
    """Make a database that was restored to an earlier point safe to start with. Blocks, with an event loop of its own.

    Raises:
        CommandError: The service is running, or Redis does not answer.
    """
    run_restoration(_restored(settings), service="token-service")


async def _restored(settings: Settings) -> None:
    engine = create_database_engine(settings.database_url, service="token-service", pool_size=1)
    redis = connect_redis(settings.redis_url)
    try:
        await restore(engine, redis, tenant_id=settings.tenant_id)
    finally:
        await redis.aclose()
        await engine.dispose()


def create_app(settings: Settings) -> Litestar:
    """Return the app; its lifespan starts and stops everything that runs in the background."""
    parts = _Parts(settings)
    grants = _grants(settings, parts)
    return create_service_app(
        service="token",
        title="Token service",
        base_url=settings.base_url,
        route_handlers=[
            *_client_endpoints(settings, parts, grants),
            *_pages(settings, parts),
            PrivateKeyController,
            NotValidKeyController,
            ConsentController,
            *metadata_endpoints(
                issuer=settings.issuer,
                urn_namespace=settings.urn_namespace,
                grant_types=grants.grant_types,
                ring=lambda: parts.keys.ring if parts.keys.is_loaded else None,
            ),
        ],
        provide={
            "authorizations": parts.authorizations,
            "consents": parts.consents,
            "directory": parts.directory,
            "feed_keys": parts.feed.keys,
            "keys": parts.keys,
            "tenant_id": settings.tenant_id,
            "management_access": Access(
                management_verify(
                    parts.directory, parts.live_tokens, management_api_resource=settings.management_api_resource
                ),
                trusted_proxies=settings.trusted_proxies,
            ),
        },
        readiness=Readiness(
            lambda: parts.keys.is_loaded,
            lambda: parts.directory.is_loaded,
            lambda: parts.ended_impersonations.is_loaded,
        ),
        registry=parts.metrics.registry,
        samples=parts.metrics.samples,
        lifespan=parts.lifespan,
        cors=lambda whole: Cors(
            whole,
            metadata_prefixes=METADATA_PREFIXES,
            public_paths=frozenset({JWKS_PATH, USERINFO_PATH}),
            registered_paths=frozenset({TOKEN_PATH, REVOCATION_PATH}),
            is_registered=parts.directory.in_memory.is_registered_origin,
        ),
    )


class _Parts:
    """What several endpoints share: connections, directory, keys, authorizations, the judging of tokens."""

    def __init__(self, settings: Settings) -> None:
        tenant_id = settings.tenant_id
        self.engine = create_database_engine(
            settings.database_url, service="token-service", pool_size=settings.database_connections
        )
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.redis_for_takes = connect_redis(settings.redis_url, blocking=True)
        self.bus = Bus(settings.nats_url, service="token")
        self.eviction_watch = EvictionWatch(self.redis)
        ends_seen = Freshness()
        self.directory = _directory(settings, self.bus, self.commands, ends_seen)
        self.revocations = Revocations(
            self.engine, self.redis, self.commands, tenant_id=tenant_id, replicas=settings.redis_replicas
        )
        self.ended_impersonations = EndedImpersonations(self.bus, self.revocations, ends_seen, tenant_id=tenant_id)
        self.keys = _signing_keys(settings, self.engine, self.directory, self.revocations)
        self.feed = _FeedParts(settings, self.engine, self.bus, self.directory.in_memory)
        self.startup = Startup(self.engine, versions=VERSIONS, then=self._start_with_database)
        self.codes = Codes(self.commands, tenant_id=tenant_id)
        self.consents = Consents(self.engine, tenant_id=tenant_id)
        self.authorizations = Authorizations(self.engine, self.revocations, tenant_id=tenant_id)
        self.third_parties = ThirdParties(self.directory, self.authorizations)
        self.forgetting = Forgetting(self.directory, self.consents, self.authorizations)
        self.refresh_tokens = RefreshTokens(
            self.engine, self.authorizations, tenant_id=tenant_id, grace_s=settings.refresh_token_grace_s
        )
        self.live_tokens = LiveTokens(
            self.directory, self.keys, self.revocations, issuer=settings.issuer, urn_namespace=settings.urn_namespace
        )
        self.user_claims = UserClaims(self.directory, urn_namespace=settings.urn_namespace)
        self.authenticator = ClientAuthenticator(self.directory)
        self.claims = _ClaimsParts(settings, self.bus, self.commands, self.directory.in_memory)
        self.audit = TokenAudit(self.commands, tenant_id=tenant_id, backlog=settings.audit_backlog)
        self.audit_relay = AuditStreamRelay(
            self.bus,
            self.commands,
            settings.database_url,
            log=LOG,
            tenant_id=tenant_id,
            attempts=Attempts(TAKEN, UNKNOWN),
        )
        self.writes_relay = AuditRelay(self.bus, settings.database_url, service=WRITES, tenant_id=tenant_id)
        self.metrics = TokenServiceMetrics()
        self.metrics.measure_directory(self.directory, self.bus, tenant_id=tenant_id)
        self.metrics.measure_keys(self.keys)
        self.metrics.measure_feed(self.feed.tail)
        self.metrics.registry.register(self.claims.failures.count)
        measure_stores(self.metrics.registry, self.metrics.samples, engine=self.engine, redis=self.redis, bus=self.bus)
        audit_backlog = AuditBacklog(self.metrics.registry, self.metrics.samples, tenant_id=tenant_id)
        audit_backlog.measure_outbox(WRITES, self.engine)
        audit_backlog.measure_stream(LOG, self.commands, limit=settings.audit_backlog)

    async def _start_with_database(self) -> None:
        self.keys.start()
        self.feed.start()
        self.writes_relay.start()

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Start and stop, in this order and its reverse; what needs the database as soon as it is migrated."""
        close_memory_to_others()
        self.bus.start()
        self.eviction_watch.start()
        self.startup.start()
        self.directory.start()
        self.revocations.start()
        self.ended_impersonations.start()
        self.authorizations.start()
        self.third_parties.start()
        self.forgetting.start()
        self.claims.start()
        self.audit_relay.start()
        try:
            yield
        finally:
            await self.audit.flush()
            await self.audit_relay.stop()
            await self.claims.stop()
            await self.forgetting.stop()
            await self.third_parties.stop()
            await self.authorizations.stop()
            await self.ended_impersonations.stop()
            await self.revocations.stop()
            await self.directory.stop()
            await self.startup.stop()
            await self.writes_relay.stop()
            await self.feed.stop()
            await self.keys.stop()
            await self.eviction_watch.stop()
            await self.bus.stop()
            await self.redis_for_takes.aclose()
            await self.redis.aclose()
            await self.engine.dispose()


class _FeedParts:
    """The not-valid feed: its keys, the sequencer, and what readers get."""

    def __init__(self, settings: Settings, engine: AsyncEngine, bus: Bus, in_memory: InMemoryDirectory) -> None:
        tenant_id = settings.tenant_id
        self.keys = FeedKeys(engine, SealingKeys(settings.key_encryption_keys), tenant_id=tenant_id)
        self.snapshots = Snapshots(engine, self.keys, tenant_id=tenant_id, issuer=settings.issuer)
        self.tail = Tail(settings.database_url, tenant_id=tenant_id)
        self._sequencer = Sequencer(
            bus,
            self.keys,
            settings.database_url,
            tenant_id=tenant_id,
            issuer=settings.issuer,
            longest_lifetime_s=_longest_lifetime_s(in_memory),
        )
        self._has_started = False

    def start(self) -> None:
        """Start what runs in the background, once the database is migrated."""
        self._has_started = True
        self.keys.start()
        self.tail.start()
        self._sequencer.start()

    async def stop(self) -> None:
        """Stop it."""
        if self._has_started:
            await self._sequencer.stop()
            await self.tail.stop()
            await self.keys.stop()


class _ClaimsParts:
    """The custom-claims function: its workers for tokens, and others for the Management API."""

    def __init__(self, settings: Settings, bus: Bus, commands: RedisCommands, in_memory: InMemoryDirectory) -> None:
        keys, tenant_id = SealingKeys(settings.environment_variable_keys), settings.tenant_id
        limits = Limits(
            time_ms=settings.claims_time_ms,
            memory_mib=settings.claims_memory_mib,
            result_bytes=settings.claims_result_bytes,
            microtasks=settings.claims_microtasks,
            nesting=settings.claims_nesting,
        )
        count, for_tests = settings.claims_workers or len(os.sched_getaffinity(0)), settings.claims_test_workers
        is_needed = in_memory.has_claims_function.is_set
        self._workers = WorkersOnDemand(ClaimsWorkers(limits, count), count=count, is_needed=is_needed)
        self._test_workers = WorkersOnDemand(ClaimsWorkers(limits, for_tests), count=for_tests)
        self._recordings = Recordings(commands, keys, tenant_id=tenant_id)
        self.failures = FailedCalls(commands, tenant_id=tenant_id)
        self.custom_claims = CustomClaims(
            in_memory,
            self._workers,
            SealedVariables(keys, tenant_id=tenant_id),
            self._recordings,
            self.failures,
        )
        self._responder = ClaimsFunctionAnswers(
            SealedRequests(keys, tenant_id=tenant_id),
            self._test_workers,
            self._recordings,
            self.failures,
            worker_count=for_tests,
        ).responder(bus)

    def start(self) -> None:
        """Start what runs in the background."""
        self.custom_claims.start()
        self._recordings.start()
        self._responder.start()

    async def stop(self) -> None:
        """Stop it, and the workers."""
        await self._responder.stop()
        await self._recordings.stop()
        await self.custom_claims.stop()
        await self._test_workers.stop()
        await self._workers.stop()


def _directory(settings: Settings, bus: Bus, commands: RedisCommands, ends_seen: Freshness) -> Directory:
    return Directory(
        bus,
        InMemoryDirectory(bus, tenant_id=settings.tenant_id),
        InRedisDirectory(bus, commands, tenant_id=settings.tenant_id, max_age_s=settings.directory_max_age_s),
        tenant_id=settings.tenant_id,
        max_age_s=settings.directory_max_age_s,
        revision_wait_s=settings.revision_wait_s,
        catch_up_wait_s=settings.catch_up_wait_s,
        further=(ends_seen,),
    )


def _signing_keys(
    settings: Settings, engine: AsyncEngine, directory: Directory, revocations: Revocations
) -> SigningKeys:
    in_memory = directory.in_memory
    return SigningKeys(
        engine,
        SealingKeys(settings.key_encryption_keys),
        revocations,
        tenant_id=settings.tenant_id,
        algorithm=cast("SigningAlgorithm", settings.signing_algorithm),
        refresh_s=settings.signing_keys_refresh_s,
        longest_lifetime_s=_longest_lifetime_s(in_memory),
    )


def _longest_lifetime_s(in_memory: InMemoryDirectory) -> Callable[[], int]:
    return lambda: max(USERINFO_TOKEN_TTL_S, ORGANIZATION_TOKEN_TTL_S, in_memory.longest_lifetime_s)


def _grants(settings: Settings, parts: _Parts) -> Grants:
    """Return the table of grants."""
    directory, issuer = parts.directory, Issuer(settings.issuer)
    custom_claims = parts.claims.custom_claims
    targets = Targets(
        directory,
        userinfo_audience=_userinfo_audience(settings),
        urn_namespace=settings.urn_namespace,
        management_api_resource=settings.management_api_resource,
        unknown_scopes=parts.metrics.unknown_scopes,
    )
    actor_tokens = ActorTokens(
        directory,
        parts.live_tokens,
        userinfo_audience=_userinfo_audience(settings),
        by_exchange=settings.actor_tokens_by_exchange,
    )
    audit = parts.audit
    subject_tokens = SubjectTokens(
        SubjectTokenStore(
            parts.redis_for_takes,
            parts.commands,
            parts.revocations,
            audit,
            tenant_id=settings.tenant_id,
            replicas=settings.redis_replicas,
        ),
        directory,
    )
    user_tokens = UserTokens(
        directory,
        targets,
        parts.user_claims,
        parts.consents,
        custom_claims,
        issuer,
        urn_namespace=settings.urn_namespace,
    )
    grants = (
        ClientCredentialsGrant(directory, targets, custom_claims, issuer),
        TokenExchangeGrant(
            directory,
            subject_tokens,
            actor_tokens,
            targets,
            custom_claims,
            issuer,
            urn_namespace=settings.urn_namespace,
        ),
        AuthorizationCodeGrant(parts.codes, parts.authorizations, parts.refresh_tokens, user_tokens),
        RefreshTokenGrant(parts.refresh_tokens, user_tokens),
    )
    table = {grant.grant_type: cast("Grant[object]", grant) for grant in grants}
    return Grants(directory, parts.keys, parts.authenticator, table, outcomes=parts.metrics.tokens, audit=audit)


def _client_endpoints(settings: Settings, parts: _Parts, grants: Grants) -> list[ASGIRouteHandler]:
    """Return the endpoints that clients call under ``/oidc``."""
    introspector = Introspector(
        parts.directory,
        parts.keys,
        parts.authenticator,
        parts.live_tokens,
        parts.refresh_tokens,
        issuer=settings.issuer,
    )
    revoker = Revoker(
        parts.directory,
        parts.keys,
        parts.authenticator,
        parts.live_tokens,
        parts.refresh_tokens,
        parts.authorizations,
        parts.revocations,
    )
    userinfo = Userinfo(
        parts.live_tokens, parts.user_claims, parts.consents, userinfo_audience=_userinfo_audience(settings)
    )
    return [
        token_endpoint(grants, trusted_proxies=settings.trusted_proxies),
        introspection_endpoint(introspector),
        revocation_endpoint(revoker),
        userinfo_endpoint(userinfo),
        *not_valid_endpoints(
            NotValidEndpoints(
                parts.directory,
                parts.authenticator,
                parts.feed.keys,
                parts.feed.snapshots,
                parts.feed.tail,
                is_public=settings.not_valid_feed_public,
            )
        ),
    ]


def _pages(settings: Settings, parts: _Parts) -> list[HTTPRouteHandler]:
    """Return the pages that people see, and the endpoints that lead to them."""
    commands, tenant_id = parts.commands, settings.tenant_id
    sessions = Sessions(commands, tenant_id=tenant_id)
    hints = IdTokenHints(parts.keys, issuer=settings.issuer)
    flow = SignInFlow(
        parts.directory, sessions, parts.authorizations, parts.codes, hints, urn_namespace=settings.urn_namespace
    )
    throttle = AddressLimit(
        commands,
        "password-attempts",
        tenant_id=tenant_id,
        window_s=settings.password_window_s,
        limit=settings.password_attempts_per_address,
        throttled=parts.metrics.throttled,
    )
    waiting = AddressLimit(
        commands,
        "pending-authorizations",
        tenant_id=tenant_id,
        window_s=PENDING_TTL_S,
        limit=settings.pending_requests_per_address,
        throttled=parts.metrics.throttled,
    )
    devices = Devices(settings.key_encryption_keys, tenant_id=tenant_id)
    authorization = AuthorizationPages(
        flow,
        PendingAuthorizations(commands, tenant_id=tenant_id),
        waiting,
        PasswordSignIn(
            flow,
            sessions,
            PasswordCheck(parts.bus, tenant_id=tenant_id),
            throttle,
            devices,
            parts.audit,
            outcomes=parts.metrics.sign_ins,
        ),
        base_url=settings.base_url,
        issuer=settings.issuer,
        trusted_proxies=settings.trusted_proxies,
    )
    end_session = EndSession(
        flow, sessions, hints, parts.audit, base_url=settings.base_url, trusted_proxies=settings.trusted_proxies
    )
    return [*authorization.routes(), *end_session.routes()]


def _userinfo_audience(settings: Settings) -> str:
    return f"{settings.issuer}/me"
