"""What several use cases share, and everything that runs in the background."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from litestar import Litestar
from prometheus_client import CollectorRegistry

from identity_common.access.management_api import UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.bus.streams import published_revision
from identity_common.lifetime import Lifetime
from identity_common.outbox.audit_backlog import AuditBacklog
from identity_common.outbox.audit_relay import AuditRelay
from identity_common.outbox.backlog import measure_outbox
from identity_common.outbox.lost_writes import LostWrites
from identity_common.outbox.mail import MailOutbox
from identity_common.outbox.mail_backlog import MailBacklog
from identity_common.outbox.mail_relay import MailRelay
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.outbox.restoration import Restoration
from identity_common.progress import Progress
from identity_common.projection.fresh_reads import FreshReads
from identity_common.sealing import SealingKeys
from identity_common.stores.database import Startup
from identity_common.stores.measures import measure_stores
from identity_common.telemetry.metrics import Samples, gauge
from identity_common.wire.organization_invitations import OrganizationInvitationRequests
from stead import AsyncAccessTokenVerifier
from template_service.fan_out.backlog import measure_fan_out
from template_service.fan_out.worker import FanOut
from template_service.mail_sending import MailSender
from template_service.management_events import ManagementEvents
from template_service.member_permissions.waiting import ChangeListener, Waiters
from template_service.members.replies import member_responder
from template_service.members.service import Members
from template_service.organization_grants.replies import organization_grants_responder
from template_service.organization_invitations.replies import InvitationReplies
from template_service.organization_invitations.service import OrganizationInvitations
from template_service.organizations.replies import organization_name_responder
from template_service.parts.connections import Connections
from template_service.parts.shared_with_commands import changes
from template_service.republication import WholeState
from template_service.restoration import mend
from template_service.search import search_responder
from template_service.settings import Settings


class Shared:
    """Connections, transactions, the projection of management-service, the verification of tokens, and metrics."""

    def __init__(self, settings: Settings, *, versions: Path, catch_up_wait_s: float) -> None:
        self.connections = connections = Connections(settings)
        tenant_id, bus, engine = settings.tenant_id, connections.bus, connections.engine
        self.published = Progress()
        self.changes = changes(settings, engine, self.published)
        self.mail = MailOutbox(SealingKeys(settings.mail_keys), tenant_id=tenant_id)
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
        restoration = Restoration(
            changes(settings, connections.for_repairs, self.published),
            republication,
            bus,
            mend,
            source="template",
            tenant_id=tenant_id,
        )
        self.registry, self.samples = CollectorRegistry(), Samples()
        self._relay = Relay(
            bus,
            settings.database_url,
            republication,
            LostWrites(
                bus,
                restoration.repair if settings.after_lost_writes == "repair" else None,
                self.registry,
                source="template",
                tenant_id=tenant_id,
            ),
            source="template",
            tenant_id=tenant_id,
            published=self.published,
        )
        self._mail_relay = MailRelay(bus, settings.database_url, source="template", tenant_id=tenant_id)
        self._audit_relay = AuditRelay(bus, settings.database_url, service="template", tenant_id=tenant_id)
        self._fan_out = FanOut(self.changes, settings.database_url, tenant_id=tenant_id, published=self.published)
        self.waiters = Waiters()
        self._listener = ChangeListener(bus, self.waiters, tenant_id=tenant_id)
        self.members = Members(
            connections.reader, connections.lookups, self.changes, self.fresh_reads, tenant_id=tenant_id
        )
        self.invitations = OrganizationInvitations(
            connections.reader,
            self.changes,
            self.fresh_reads,
            self.members,
            self.mail,
            MailSender(bus, tenant_id=tenant_id),
            tenant_id=tenant_id,
        )
        requests = OrganizationInvitationRequests(SealingKeys(settings.mail_keys), tenant_id=tenant_id)
        self._responders = (
            InvitationReplies(requests, self.invitations).responder(bus),
            member_responder(bus, engine, tenant_id=tenant_id),
            organization_name_responder(bus, engine, tenant_id=tenant_id),
            organization_grants_responder(bus, engine, tenant_id=tenant_id),
            search_responder(bus, engine, tenant_id=tenant_id),
        )
        self.startup = Startup(engine, versions=versions, then=self._start_with_database)
        self.tokens = UnrevokedTokens(
            AsyncAccessTokenVerifier(
                issuer=settings.issuer, audience=settings.management_api_resource, jwks_url=settings.jwks_address
            ),
            RevocationReader(connections.commands, tenant_id=tenant_id),
        )
        self._measure(settings)

    def _measure(self, settings: Settings) -> None:
        registry, samples, connections = self.registry, self.samples, self.connections
        waiting = gauge(
            registry, "waiting_requests", "Number of requests that are held until the permissions of a member change."
        )
        waiting.set_function(lambda: float(len(self.waiters)))
        lag = gauge(
            registry,
            "directory_lag_revisions",
            "Published revisions of management-service that have not been applied yet.",
            *("store", "source"),
        )

        async def behind() -> list[float]:
            head = await published_revision(connections.bus.jetstream(), "management", settings.tenant_id)
            return [max(0.0, float(head - self.management_events.freshness.seen("management")))]

        samples.add([lag.labels("postgresql", "management")], behind)
        measure_stores(registry, samples, engine=connections.engine, redis=connections.redis, bus=connections.bus)
        measure_outbox(registry, samples, connections.reader, tenant_id=settings.tenant_id)
        AuditBacklog(registry, samples, tenant_id=settings.tenant_id).measure_outbox("template", connections.reader)
        MailBacklog(registry, samples, tenant_id=settings.tenant_id).measure_outbox(connections.reader)
        measure_fan_out(registry, samples, connections.reader, tenant_id=settings.tenant_id)

    async def _start_with_database(self, lifetime: Lifetime) -> None:
        await self.changes.prepare()
        lifetime.start(
            self._relay,
            self._audit_relay.loop,
            self._mail_relay.loop,
            self.management_events,
            self._fan_out.loop,
            *self._responders,
        )

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Start everything and stop it in reverse; what needs the database starts once that is migrated."""
        async with Lifetime() as lifetime:
            lifetime.start(self.connections, self.startup, self._listener)
            yield
