"""Links in mails, and the replies to token-service, whose pages they lead to."""

from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.sealing import SealingKeys
from identity_common.stores.source_limit import SourceLimit
from identity_common.wire.account_links import AccountLinkRequests
from identity_common.wire.organization_invitations import OrganizationInvitationRequests
from management_service.links.answers import AccountLinkAnswers
from management_service.links.invitations import InvitedAccounts
from management_service.links.recovery import PasswordRecovery
from management_service.links.registration import Registration
from management_service.links.store import MailedLinks
from management_service.links.verification import EmailVerifications
from management_service.organization_invitations import OrganizationInvitations
from management_service.parts.connections import Connections
from management_service.passwords.hashing import Passwords
from management_service.settings import Settings
from management_service.users.service import Users


class Links:
    """The use cases of links, which share a limit of mails by recipient, for each kind of link.

    Attributes:
        recovery: Lets users choose another password.
        verifications: Confirms e-mail addresses.
        registration: Creates accounts.
        responder: Replies to token-service.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        changes: Changes,
        users: Users,
        passwords: Passwords,
        mail: MailOutbox,
        limit: SourceLimit,
    ) -> None:
        tenant_id, reader, is_mail_sent = settings.tenant_id, connections.reader, settings.sends_mail
        links = MailedLinks(tenant_id=tenant_id)
        self.recovery = PasswordRecovery(reader, changes, users, passwords, links, mail, limit, tenant_id=tenant_id)
        self.verifications = EmailVerifications(
            reader, changes, users, links, mail, limit, is_mail_sent=is_mail_sent, tenant_id=tenant_id
        )
        invitations = OrganizationInvitations(
            connections.bus,
            OrganizationInvitationRequests(SealingKeys(settings.mail_keys), tenant_id=tenant_id),
        )
        self.registration = Registration(
            reader, changes, users, passwords, links, mail, limit, invitations, tenant_id=tenant_id
        )
        requests = AccountLinkRequests(SealingKeys(settings.environment_variable_keys), tenant_id=tenant_id)
        answers = AccountLinkAnswers(
            requests,
            self.recovery,
            self.verifications,
            self.registration,
            InvitedAccounts(reader, changes, users, passwords, invitations, tenant_id=tenant_id),
            is_mail_sent=is_mail_sent,
        )
        self.responder = answers.responder(connections.bus)
