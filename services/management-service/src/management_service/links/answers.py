"""Replies to token-service on the bus, which asks about links in mails."""

from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.bus.sealed_responder import sealed_responder
from identity_common.email_addresses import is_email_address
from identity_common.failures import Conflict, TemporarilyUnavailable
from identity_common.names import canonical_name, name_problem
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import (
    AccountLinkRequests,
    Answer,
    ConfirmAddress,
    Done,
    InvitationFound,
    Joined,
    JoinOrganization,
    LinkFound,
    LinkRequested,
    Offers,
    Question,
    ReadInvitation,
    ReadOffers,
    ReadRecovery,
    ReadRegistration,
    ReadVerification,
    Recover,
    Refused,
    Register,
    Registered,
    RequestRecovery,
    RequestRegistration,
    Unavailable,
)
from management_service.administrators import LAST_ADMINISTRATOR
from management_service.links.invitations import InvitedAccounts, NotJoinedError
from management_service.links.recovery import PasswordRecovery
from management_service.links.registration import Registration
from management_service.links.rules import RECOVERY_S, REGISTRATION_S, LinkNotValidError
from management_service.links.store import OpenedLink
from management_service.links.verification import EmailVerifications
from management_service.passwords.hashing import Busy
from management_service.users.rules import is_password
from management_service.visitors import DefaultRolesRefusedError, audit_visitor

_log = get_logger(__name__)

_AT_ONCE: Final = 256


class AccountLinkAnswers:
    """Replies to the requests of one tenant.

    Args:
        requests: Opens requests and seals replies.
        recovery: Forgotten passwords.
        verifications: E-mail addresses.
        registration: New accounts.
        invited: Accounts that are invited to organizations.
        is_mail_sent: Whether this deployment sends mail.
    """

    def __init__(
        self,
        requests: AccountLinkRequests,
        recovery: PasswordRecovery,
        verifications: EmailVerifications,
        registration: Registration,
        invited: InvitedAccounts,
        *,
        is_mail_sent: bool,
    ) -> None:
        self._requests = requests
        self._recovery = recovery
        self._verifications = verifications
        self._registration = registration
        self._invited = invited
        self._is_mail_sent = is_mail_sent

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to the requests on the bus."""
        return sealed_responder(
            bus,
            self._requests,
            self._reply,
            unavailable=Unavailable(),
            name="account-links",
            log=_log,
            expected=(SQLAlchemyError, TemporarilyUnavailable, OSError),
            at_once=_AT_ONCE,
        )

    async def _reply(self, question: Question, _: float) -> Answer:
        try:
            return await self._answer(question)
        except LinkNotValidError:
            return Refused(reason="link-not-valid")
        except Busy as busy:
            _log.warning("account-links.busy", delay_s=busy.retry_after_s)
            return Unavailable(retry_after_s=busy.retry_after_s)

    async def _answer(self, question: Question) -> Answer:
        match question:
            case ReadOffers():
                return Offers(is_mail_sent=self._is_mail_sent)
            case RequestRecovery():
                return await self._request_link(self._recovery, question, lifetime_s=RECOVERY_S)
            case ReadRecovery():
                return _found(await self._recovery.find(question.link))
            case Recover():
                return await self._recover(question)
            case ReadVerification():
                return _found(await self._verifications.find(question.link))
            case ConfirmAddress():
                return await self._confirm_address(question)
            case RequestRegistration() | ReadRegistration() | Register():
                return await self._answer_registration(question)
            case ReadInvitation() | JoinOrganization():
                return await self._answer_invitation(question)

    async def _answer_invitation(
        self, question: ReadInvitation | JoinOrganization
    ) -> InvitationFound | Joined | Refused:
        try:
            if isinstance(question, JoinOrganization):
                return Joined(organization=await self._invited.join(question))
            opened = await self._invited.find(question.link, signed_in=question.user_id)
        except NotJoinedError as error:
            return Refused(reason=error.reason)
        return InvitationFound(
            organization=opened.found.organization,
            address=opened.found.invitee,
            account=opened.account,
            inviter=opened.found.inviter,
        )

    async def _request_link(
        self,
        links: PasswordRecovery | Registration,
        question: RequestRecovery | RequestRegistration,
        *,
        lifetime_s: int,
    ) -> LinkRequested | Refused:
        if not self._is_mail_sent:
            return Refused(reason="no-mail")
        if not is_email_address(question.address):
            return Refused(reason="not-an-address")
        await links.request(question.address, question.context, visitor_address=question.visitor.address)
        return LinkRequested(minutes=lifetime_s // 60)

    async def _recover(self, question: Recover) -> Done | Refused:
        opened = await self._recovery.find(question.link)
        if not is_password(question.password):
            return Refused(reason="password-not-accepted")
        audit_visitor("RecoverPassword", opened.user.id, question.visitor)
        return Done(context=await self._recovery.complete(opened, question.link, question.password))

    async def _confirm_address(self, question: ConfirmAddress) -> Done | Refused:
        opened = await self._verifications.find(question.link)
        audit_visitor("ConfirmEmailAddress", opened.user.id, question.visitor)
        try:
            return Done(context=await self._verifications.confirm(opened, question.link))
        except Conflict as conflict:
            is_last = conflict.code == LAST_ADMINISTRATOR
            return Refused(reason="account-not-accepted" if is_last else "address-in-use")

    async def _answer_registration(self, question: RequestRegistration | ReadRegistration | Register) -> Answer:
        match question:
            case RequestRegistration():
                return await self._request_link(self._registration, question, lifetime_s=REGISTRATION_S)
            case ReadRegistration():
                link = await self._registration.find(question.link)
                return LinkFound(address=link.address, context=link.context)
            case Register():
                return await self._register(question)

    async def _register(self, question: Register) -> Registered | Refused:
        link = await self._registration.find(question.link)
        if name_problem(canonical_name(question.name)) is not None:
            return Refused(reason="name-not-accepted")
        if not is_password(question.password):
            return Refused(reason="password-not-accepted")
        user = self._registration.new_user(link, question.name)
        audit_visitor("Register", user.id, question.visitor)
        try:
            account = await self._registration.complete(link, question.link, user, question.password)
        except Conflict:
            return Refused(reason="address-in-use")
        except DefaultRolesRefusedError:
            return Refused(reason="account-not-accepted")
        return Registered(user_id=account.user_id, revision=account.revision, context=account.context)


def _found(opened: OpenedLink) -> LinkFound:
    return LinkFound(address=opened.link.address, account=opened.user.identifier or "", context=opened.link.context)
