"""What several endpoints share, and everything that runs in the background."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from litestar import Litestar

from identity_common.lifetime import Lifetime
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.audit_stream_relay import Attempts, AuditStreamRelay
from identity_common.projection.freshness import Freshness
from identity_common.stores.capacity import measure_capacity
from identity_common.stores.database import Startup
from identity_common.stores.eviction import EvictionWatch
from identity_common.stores.measures import measure_stores
from identity_common.stores.replication_watch import ReplicationWatch
from identity_common.stores.source_limit import SourceLimit
from token_service.audit import TokenAudit
from token_service.audit.token_requests import LOG, TAKEN, UNKNOWN
from token_service.audit.writes import WRITES
from token_service.authorizations import Authorizations, Codes, Consents, RefreshTokens
from token_service.authorizations.forgetting import Forgetting
from token_service.authorizations.third_parties import ThirdParties
from token_service.claims_function.sandbox import close_memory_to_others
from token_service.directory import Directory, InMemoryDirectory, InRedisDirectory
from token_service.grants.client_authentication import ClientAuthenticator
from token_service.grants.failed_authentications import FailedAuthentications
from token_service.grants.waiting import WaitingRequests
from token_service.metrics import TokenServiceMetrics
from token_service.parts.claims_function import ClaimsFunction
from token_service.parts.connections import Connections
from token_service.parts.not_valid_feed import NotValidFeed
from token_service.parts.signing_keys import signing_keys
from token_service.presented_tokens.ended_impersonations import EndedImpersonations
from token_service.presented_tokens.live_tokens import LiveTokens
from token_service.presented_tokens.revocations import Revocations
from token_service.settings import Settings
from token_service.sign_in.closed_connectors import ClosedConnectors
from token_service.sign_in.ended_identities import EndedIdentities
from token_service.sign_in.ending import SessionEnds
from token_service.sign_in.sessions import Sessions
from token_service.tokens.user_claims import UserClaims

_FAILURES_WINDOW_S: Final = 900


class Shared:
    """Connections, directory, keys, authorizations, the verification of tokens, the audit trail and metrics."""

    def __init__(self, settings: Settings, *, versions: Path, catch_up_wait_s: float) -> None:
        tenant_id = settings.tenant_id
        self.connections = connections = Connections(settings)
        engine, bus, commands = connections.engine, connections.bus, connections.commands
        self._eviction_watch = EvictionWatch(connections.redis)
        replicas = settings.redis_replicas
        self._replication_watch = ReplicationWatch(connections.redis, replicas=replicas) if replicas else None
        ends_seen = Freshness("management")
        self.directory = _directory(settings, connections, ends_seen, catch_up_wait_s=catch_up_wait_s)
        self.revocations = Revocations(
            engine, connections.redis, commands, tenant_id=tenant_id, replicas=settings.redis_replicas
        )
        self.ended_impersonations = EndedImpersonations(bus, self.revocations, ends_seen, tenant_id=tenant_id)
        self.keys = signing_keys(settings, engine, self.directory.in_memory, self.revocations)
        self.feed = NotValidFeed(settings, connections, self.directory.in_memory)
        self._startup = Startup(engine, versions=versions, then=self._start_with_database)
        self.codes = Codes(commands, tenant_id=tenant_id)
        self.consents = Consents(engine, tenant_id=tenant_id)
        self.authorizations = Authorizations(engine, self.revocations, tenant_id=tenant_id)
        self.sessions = Sessions(commands, connections.redis, tenant_id=tenant_id, replicas=settings.redis_replicas)
        self.session_ends = SessionEnds(self.sessions, self.authorizations)
        self._closed_connectors = ClosedConnectors(self.directory.in_memory.connectors, self.session_ends)
        self._ended_identities = EndedIdentities(bus, engine, self.session_ends, tenant_id=tenant_id)
        self._third_parties = ThirdParties(self.directory, self.authorizations)
        self._forgetting = Forgetting(self.directory, self.consents, self.authorizations)
        self.refresh_tokens = RefreshTokens(
            engine, self.authorizations, tenant_id=tenant_id, grace_s=settings.refresh_token_grace_s
        )
        self.live_tokens = LiveTokens(
            self.directory, self.keys, self.revocations, issuer=settings.issuer, urn_namespace=settings.urn_namespace
        )
        self.user_claims = UserClaims(self.directory, urn_namespace=settings.urn_namespace)
        self.waiting = WaitingRequests()
        self.claims_function = ClaimsFunction(settings, connections, self.directory.in_memory)
        self.audit = TokenAudit(commands, tenant_id=tenant_id, backlog=settings.audit_backlog)
        self._audit_relay = AuditStreamRelay(
            bus, commands, settings.database_url, log=LOG, tenant_id=tenant_id, attempts=Attempts(TAKEN, UNKNOWN)
        )
        self._writes_relay = AuditRelay(bus, settings.database_url, service=WRITES, tenant_id=tenant_id)
        self.metrics = self._measured(settings)
        self.authenticator = ClientAuthenticator(self.directory, self._failed_authentications(settings))

    def _failed_authentications(self, settings: Settings) -> FailedAuthentications:
        commands, throttled = self.connections.commands, self.metrics.throttled
        per_address = SourceLimit(
            commands,
            "client-failures",
            tenant_id=settings.tenant_id,
            window_s=_FAILURES_WINDOW_S,
            limit=settings.client_failures_per_address,
            throttled=throttled,
        )
        per_client = SourceLimit(
            commands,
            "client-failures",
            tenant_id=settings.tenant_id,
            window_s=_FAILURES_WINDOW_S,
            limit=settings.client_failures_per_client,
            throttled=throttled,
            by="client",
        )
        return FailedAuthentications(per_address, per_client)

    def _measured(self, settings: Settings) -> TokenServiceMetrics:
        metrics, connections, tenant_id = TokenServiceMetrics(), self.connections, settings.tenant_id
        registry, samples = metrics.registry, metrics.samples
        metrics.measure_directory(self.directory, connections.bus, tenant_id=tenant_id)
        metrics.measure_keys(self.keys)
        metrics.measure_feed(self.feed.tail)
        metrics.measure_lost_writes(self.revocations)
        registry.register(self.claims_function.failures.count)
        measure_stores(registry, samples, engine=connections.engine, redis=connections.redis, bus=connections.bus)
        measure_capacity(registry, samples, redis=connections.redis, bus=connections.bus)
        audit_backlog = AuditBacklog(registry, samples, tenant_id=tenant_id)
        audit_backlog.measure_outbox(WRITES, connections.engine)
        audit_backlog.measure_stream(LOG, connections.commands, limit=settings.audit_backlog)
        return metrics

    async def _start_with_database(self, lifetime: Lifetime) -> None:
        lifetime.start(self.keys.loop)
        self.feed.start(lifetime)
        lifetime.start(self._writes_relay.loop, self._ended_identities)

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Start everything and stop it in reverse; what needs the database starts once that is migrated."""
        close_memory_to_others()
        async with Lifetime() as lifetime:
            lifetime.start(
                self.connections,
                self._eviction_watch.loop,
                self._startup,
                self.directory,
                self.revocations,
                self.ended_impersonations,
                self.authorizations.loop,
                self._third_parties.loop,
                self._closed_connectors.loop,
                self._forgetting.loop,
            )
            if self._replication_watch is not None:
                lifetime.start(self._replication_watch.loop)
            self.claims_function.start(lifetime)
            lifetime.start(self._audit_relay.loop)
            lifetime.at_end(self.audit.flush)
            lifetime.start(self.audit.refusals.loop)
            yield


def _directory(
    settings: Settings, connections: Connections, ends_seen: Freshness, *, catch_up_wait_s: float
) -> Directory:
    bus, tenant_id = connections.bus, settings.tenant_id
    return Directory(
        bus,
        InMemoryDirectory(bus, tenant_id=tenant_id),
        InRedisDirectory(bus, connections.commands, tenant_id=tenant_id, max_age_s=settings.directory_max_age_s),
        tenant_id=tenant_id,
        max_age_s=settings.directory_max_age_s,
        revision_wait_s=settings.revision_wait_s,
        catch_up_wait_s=catch_up_wait_s,
        further=(ends_seen,),
    )
