"""What several use cases share, and everything that runs in the background."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from litestar import Litestar
from prometheus_client import CollectorRegistry

from identity_common.access.management_api import UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.lifetime import Lifetime
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.audit_stream_relay import AuditStreamRelay
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.lost_writes import LostWrites
from identity_common.outbox.mail import MailOutbox
from identity_common.outbox.mail_backlog import MailBacklog
from identity_common.outbox.mail_relay import MailRelay
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.outbox.restoration import Restoration
from identity_common.progress import Progress
from identity_common.sealing import SealingKeys
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.database import Startup
from identity_common.stores.measures import measure_stores
from identity_common.telemetry.metrics import Samples, counter
from management_service.audit.storing.ingestion import AuditIngestion
from management_service.audit.storing.lag import measure_lag
from management_service.audit.tree.head_keys import HeadKeys
from management_service.audit.tree.heads import Heads
from management_service.authentication import Authentication
from management_service.mail.replies import mail_sending_responder
from management_service.parts.claims_function import claims_functions
from management_service.parts.connections import Connections
from management_service.parts.connectors import ConnectorParts
from management_service.parts.factors import Factors
from management_service.parts.links import Links
from management_service.parts.mail import mail_limit, mail_sender
from management_service.parts.shared_with_commands import changes, sign_in_attempts
from management_service.parts.users import assignments, users
from management_service.passwords.checks import PasswordChecks
from management_service.passwords.hashing import Passwords
from management_service.republication import republication_steps
from management_service.restoration import mend
from management_service.settings import Settings
from management_service.subject_tokens.store import LOG as SUBJECT_TOKEN_LOG
from stead import AsyncAccessTokenVerifier


class Shared:
    """Connections, transactions, passwords, the keys of the audit trail, the verification of tokens, and metrics."""

    def __init__(self, settings: Settings, *, versions: Path) -> None:
        self.connections = connections = Connections(settings)
        self.registry, self.samples = CollectorRegistry(), Samples()
        tenant_id, bus, commands = settings.tenant_id, connections.bus, connections.commands
        self._settings = settings
        published = Progress()
        self.changes = changes(settings, connections.engine, published)
        self.sealing = SealingKeys(settings.audit_head_keys)
        self.mail = MailOutbox(SealingKeys(settings.mail_keys), tenant_id=tenant_id)
        self.head_keys = HeadKeys(connections.reader, self.changes, self.sealing, tenant_id=tenant_id)
        self.claims_functions = claims_functions(settings, connections, self.changes)
        self.passwords = Passwords(threads=settings.password_hashing_threads)
        self.attempts = sign_in_attempts(settings, commands)
        republication = Republication(self.changes, tenant_id=tenant_id, steps=republication_steps(tenant_id))
        heads = Heads(
            bus,
            self.sealing,
            issuer=settings.base_url,
            tenant_id=tenant_id,
            refused=counter(
                self.registry, "audit_heads_refused", "Heads of the audit trail that were not signed: see the log."
            ),
        )
        restoration = Restoration(
            changes(settings, connections.for_repairs, published),
            republication,
            bus,
            mend,
            source="management",
            tenant_id=tenant_id,
        )
        self._relay = Relay(
            bus,
            settings.database_url,
            republication,
            LostWrites(
                bus,
                restoration.repair if settings.after_lost_writes == "repair" else None,
                self.registry,
                source="management",
                tenant_id=tenant_id,
            ),
            source="management",
            tenant_id=tenant_id,
            published=published,
        )
        self._mail_relay = MailRelay(bus, settings.database_url, source="management", tenant_id=tenant_id)
        self._mail_sender = mail_sender(settings, bus, self.registry)
        self._mail_replies = mail_sending_responder(bus, is_configured=settings.sends_mail, tenant_id=tenant_id)
        self._audit_relay = AuditRelay(bus, settings.database_url, service="management", tenant_id=tenant_id)
        self._audit_ingestion = AuditIngestion(
            bus,
            settings.database_url,
            heads,
            tenant_id=tenant_id,
            retention_days=settings.audit_retention_days,
            skipped=counter(
                self.registry,
                "audit_entries_skipped",
                "Entries of the audit trail that could not be stored: see the log.",
            ),
        )
        self._subject_token_relay = AuditStreamRelay(
            bus, commands, settings.database_url, log=SUBJECT_TOKEN_LOG, tenant_id=tenant_id
        )
        self.assignments = assignments(settings, connections, self.changes)
        self.users = users(settings, connections, self.changes, self.passwords, self.attempts, self.assignments)
        limit = mail_limit(
            commands,
            tenant_id=tenant_id,
            throttled=counter(self.registry, "throttled", "Attempts beyond a limit, by limit.", "limit"),
        )
        self.connectors = ConnectorParts(settings, connections, self.changes, self.users, self.mail, self.sealing)
        self.factors = Factors(
            settings,
            connections,
            self.changes,
            self.users,
            self.mail,
            limit,
            self.attempts,
            self.sealing,
            self.connectors.tickets.is_of,
        )
        self._password_checks = PasswordChecks(
            connections.reader,
            self.changes,
            self.passwords,
            self.attempts,
            self.factors.enrolments.read,
            self.connectors.tickets.is_of,
            tenant_id=tenant_id,
        ).responder(bus)
        self.links = Links(settings, connections, self.changes, self.users, self.passwords, self.mail, limit)
        self.startup = Startup(connections.engine, versions=versions, then=self._start_with_database)
        self.minting_refusals = AuditStream(
            commands, AuditStreamKeys.of(SUBJECT_TOKEN_LOG, tenant_id), backlog=settings.audit_backlog
        )
        self.tokens = UnrevokedTokens(
            AsyncAccessTokenVerifier(
                issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
            ),
            RevocationReader(commands, tenant_id=tenant_id),
        )
        self.authentication = Authentication(connections.lookups, tenant_id=tenant_id)
        self._measure(settings)

    def _measure(self, settings: Settings) -> None:
        registry, samples, connections = self.registry, self.samples, self.connections
        tenant_id, reader, bus = settings.tenant_id, connections.reader, connections.bus
        measure_stores(registry, samples, engine=connections.engine, redis=connections.redis, bus=bus)
        measure_outbox(registry, samples, reader, tenant_id=tenant_id)
        audit_backlog = AuditBacklog(registry, samples, tenant_id=tenant_id)
        audit_backlog.measure_outbox("management", reader)
        audit_backlog.measure_stream(SUBJECT_TOKEN_LOG, connections.commands, limit=settings.audit_backlog)
        mail_backlog = MailBacklog(registry, samples, tenant_id=tenant_id)
        mail_backlog.measure_outbox(reader)
        mail_backlog.measure_stream(bus)
        measure_lag(registry, samples, reader, bus, tenant_id=tenant_id)

    async def _start_with_database(self, lifetime: Lifetime) -> None:
        await self.changes.prepare()
        lifetime.start(self._relay)  # it lets changes commit after a failover
        await self.claims_functions.renew_seals()
        # Earlier versions sealed the keys of heads with those of environment variables, which token-service knows.
        earlier = self._settings.environment_variable_keys
        await self.head_keys.renew_seals(SealingKeys((*self._settings.audit_head_keys, *earlier)))
        await self.factors.authenticators.renew_seals()
        await self.connectors.connectors.renew_seals()
        lifetime.start(
            self._audit_relay.loop,
            self._mail_relay.loop,
            self._mail_sender.loop,
            self._mail_replies,
            self._subject_token_relay.loop,
            self._audit_ingestion.loop,
            self._password_checks,
            self.links.responder,
            self.factors.responder,
            *self.connectors.responders,
        )

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Start everything and stop it in reverse; what needs the database starts once that is migrated."""
        with closing(self.passwords):
            async with Lifetime() as lifetime:
                lifetime.start(self.connections, self.startup)
                lifetime.at_end(self.minting_refusals.flush)
                yield
