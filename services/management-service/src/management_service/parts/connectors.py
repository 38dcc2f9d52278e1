"""Connectors to providers, and the replies to token-service about their people."""

from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.outgoing import OutgoingCalls
from identity_common.sealing import SealingKeys
from identity_common.wire.actor_tokens import ActorTokenRequests
from identity_common.wire.provider_sign_in import ProviderSignInRequests
from management_service.connectors.actor_tokens import ActorTokenAnswers
from management_service.connectors.answers import ProviderSignInAnswers
from management_service.connectors.clients import Clients
from management_service.connectors.provider_sign_ins import ProviderSignIns
from management_service.connectors.providers import Providers
from management_service.connectors.service import Connectors
from management_service.connectors.tickets import LinkTickets
from management_service.connectors.token_endpoint import TokenEndpoints
from management_service.factors.enrolments import open_enrolment
from management_service.parts.connections import Connections
from management_service.parts.shared_with_commands import administrators, attainable_scopes
from management_service.settings import Settings
from management_service.users.service import Users


class ConnectorParts:
    """The use cases of connectors.

    Attributes:
        connectors: Connectors and identities.
        tickets: Tickets for links.
        responders: Reply to token-service.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        changes: Changes,
        users: Users,
        mail: MailOutbox,
        sealing: SealingKeys,
    ) -> None:
        tenant_id, reader = settings.tenant_id, connections.reader
        keys = SealingKeys(settings.environment_variable_keys)
        calls = OutgoingCalls(networks=settings.outgoing_networks)
        providers, clients = Providers(calls), Clients(sealing, tenant_id=tenant_id)
        self.tickets = LinkTickets(sealing, tenant_id=tenant_id)
        self.connectors = Connectors(
            reader,
            changes,
            providers,
            clients,
            administrators(settings),
            attainable_scopes(settings),
            mail,
            tenant_id=tenant_id,
            issuer=settings.issuer,
        )
        sign_ins = ProviderSignIns(
            reader,
            changes,
            users,
            providers,
            TokenEndpoints(calls),
            clients,
            self.tickets,
            mail,
            open_enrolment,
            tenant_id=tenant_id,
        )
        self.responders = (
            ActorTokenAnswers(
                ActorTokenRequests(keys, tenant_id=tenant_id), reader, providers, tenant_id=tenant_id
            ).responder(connections.bus),
            ProviderSignInAnswers(ProviderSignInRequests(keys, tenant_id=tenant_id), sign_ins).responder(
                connections.bus
            ),
        )
