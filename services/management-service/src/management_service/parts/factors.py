"""Second factors, and the replies to token-service, whose pages ask for them."""

from collections.abc import Callable

from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.relying_party import relying_party
from identity_common.sealing import SealingKeys
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import FactorRequests
from management_service.factors.answers import FactorAnswers
from management_service.factors.authenticators import Authenticators
from management_service.factors.ceremonies import Ceremonies
from management_service.factors.changes import FactorChanges
from management_service.factors.enrolments import Enrolments
from management_service.factors.passkeys import Passkeys
from management_service.factors.recovery_codes import RecoveryCodes
from management_service.parts.connections import Connections
from management_service.passwords.attempts import SignInAttempts
from management_service.settings import Settings
from management_service.users.service import Users

_log = get_logger(__name__)


class Factors:
    """The use cases of factors.

    Attributes:
        ceremonies: Verifies what browsers send about passkeys, where there can be any.
        passkeys: The passkeys.
        enrolments: Lets users set up a first factor.
        changes: What every change of a user's factors does besides it.
        authenticators: The authenticator apps.
        responder: Replies to token-service.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        changes: Changes,
        users: Users,
        mail: MailOutbox,
        limit: SourceLimit,
        attempts: SignInAttempts,
        sealing: SealingKeys,
        is_link_of: Callable[[str | None, str], bool],
    ) -> None:
        tenant_id, reader = settings.tenant_id, connections.reader
        self.ceremonies = _ceremonies(settings)
        requests = FactorRequests(SealingKeys(settings.environment_variable_keys), tenant_id=tenant_id)
        self.enrolments = Enrolments(
            reader,
            connections.lookups,
            changes,
            mail,
            limit,
            offers_passkeys=self.ceremonies.are_on,
            is_mail_sent=settings.sends_mail,
            tenant_id=tenant_id,
        )
        self.changes = FactorChanges(users, self.enrolments, mail, tenant_id=tenant_id)
        self.passkeys = Passkeys(
            connections.lookups,
            changes,
            self.changes,
            self.enrolments,
            self.ceremonies,
            is_link_of,
            tenant_id=tenant_id,
        )
        self.authenticators = Authenticators(
            reader,
            changes,
            self.changes,
            self.enrolments,
            sealing,
            attempts,
            issuer=settings.mail_name,
            tenant_id=tenant_id,
        )
        recovery_codes = RecoveryCodes(reader, changes, self.changes, mail, tenant_id=tenant_id)
        answers = FactorAnswers(requests, self.passkeys, self.authenticators, recovery_codes, self.enrolments)
        self.responder = answers.responder(connections.bus)


def _ceremonies(settings: Settings) -> Ceremonies:
    found = relying_party(settings.base_url, settings.webauthn_rp_id)
    if found is None:
        _log.warning("passkeys.off", reason="the host of BASE_URL is an IP address, and passkeys belong to a domain")
    return Ceremonies(found, aaguids=settings.webauthn_aaguids)
