"""Invitations to organizations: finds or creates the account with the invited address, which then joins.

The account is created before the invitation is accepted, once template-service has confirmed that the link is open and
which address it names. If accepting fails, the account stays, and the link goes on for it.
"""

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.email_addresses import is_same_mailbox
from identity_common.failures import Conflict
from identity_common.names import canonical_name, name_problem
from identity_common.outbox.changes import Changes
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import InvitedAccount, JoinOrganization, RefusalReason
from identity_common.wire.organization_invitations import (
    AcceptInvitation,
    FindInvitation,
    InvitationAccepted,
    InvitationFound,
)
from identity_common.wire.organization_invitations import Refused as InvitationRefused
from management_service.factors.enrolments import open_enrolment
from management_service.organization_invitations import OrganizationInvitations, link_sha256
from management_service.passwords.hashing import Passwords
from management_service.provider_people import belongs_to_provider
from management_service.users.rules import UserCreation, UserUpdate, is_password
from management_service.users.service import Users
from management_service.users.store import User, find_user_by_email
from management_service.visitors import DefaultRolesRefusedError, audit_visitor, creating_account

_log = get_logger(__name__)


class NotJoinedError(Exception):
    """The invitation is not accepted.

    Attributes:
        reason: Why.
    """

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason)
        self.reason: RefusalReason = reason


class OpenedInvitation(msgspec.Struct, frozen=True):
    """An invitation as its link shows it, and the account with the invited address.

    Attributes:
        user: The account; None if there is none.
        account: What can be done with it.
    """

    found: InvitationFound
    user: User | None
    account: InvitedAccount


class InvitedAccounts:
    """Accepts invitations for the accounts with the invited addresses.

    The link shows that its reader receives mail at the address. An account to which it was given without such a proof,
    or whose address only compares equal, may be that of another person, so it joins only where it is signed in, too.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        passwords: Passwords,
        invitations: OrganizationInvitations,
        *,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._passwords = passwords
        self._invitations = invitations
        self._tenant_id = tenant_id

    async def find(self, link: str, *, signed_in: str | None) -> OpenedInvitation:
        """Return what a link opens; this changes nothing.

        Args:
            link: Value of the link.
            signed_in: The user who is signed in at the browser.

        Raises:
            NotJoinedError: The link is not valid, the account is suspended, or its owner has to sign in at a provider
                first.
            TemporarilyUnavailable: template-service does not answer.
        """
        found = await self._invitations.ask(FindInvitation(link_sha256=link_sha256(link)), InvitationFound)
        if isinstance(found, InvitationRefused):
            raise NotJoinedError(found.reason)
        async with self._reader.connect() as connection:
            user = await find_user_by_email(connection, self._tenant_id, found.invitee)
            if user is None and await belongs_to_provider(connection, self._tenant_id, found.invitee):
                raise NotJoinedError("account-not-accepted")
        if user is None:
            return OpenedInvitation(found, None, "new")
        if user.is_suspended:
            raise NotJoinedError("account-not-accepted")
        is_known = user.id == signed_in or (user.is_email_verified and _reaches(found, user))
        return OpenedInvitation(found, user, "known" if is_known else "unverified")

    async def join(self, question: JoinOrganization) -> str:
        """Accept an invitation; return the name of the organization.

        Raises:
            NotJoinedError: The invitation is not accepted.
            Busy: The password cannot be hashed in time.
            TemporarilyUnavailable: template-service does not answer.
        """
        opened = await self.find(question.link, signed_in=question.user_id)
        if opened.account == "unverified":
            raise NotJoinedError("account-not-accepted")
        user_id = await self._account(opened, question)
        accepting = AcceptInvitation(
            link_sha256=link_sha256(question.link),
            user_id=user_id,
            address=question.visitor.address,
            user_agent=question.visitor.user_agent,
        )
        accepted = await self._invitations.ask(accepting, InvitationAccepted)
        if isinstance(accepted, InvitationRefused):
            raise NotJoinedError(accepted.reason)
        _log.info("invitation.accepted", user_id=user_id)
        return accepted.organization

    async def _account(self, opened: OpenedInvitation, question: JoinOrganization) -> str:
        """Return the account that joins; the link verifies its address, if that is the invited one."""
        if opened.user is None:
            return await self._create(opened.found.invitee, question)
        if not opened.user.is_email_verified and _reaches(opened.found, opened.user):
            audit_visitor("ConfirmEmailAddress", opened.user.id, question.visitor)
            await self._users.update(opened.user.id, UserUpdate(is_email_verified=True))
        return opened.user.id

    async def _create(self, address: str, question: JoinOrganization) -> str:
        if name_problem(canonical_name(question.name)) is not None:
            raise NotJoinedError("name-not-accepted")
        if not is_password(question.password):
            raise NotJoinedError("password-not-accepted")
        creation = UserCreation(
            name=question.name, primary_email=address, password=question.password, is_email_verified=True
        )
        user = self._users.new_user(creation)
        audit_visitor("JoinOrganization", user.id, question.visitor)
        password_hash = await self._passwords.hash(question.password)
        try:
            with creating_account():
                await self._store(user, password_hash)
        except Conflict:
            raise NotJoinedError("address-in-use") from None
        except DefaultRolesRefusedError:
            raise NotJoinedError("account-not-accepted") from None
        _log.info("invitation.account-created", user_id=user.id)
        return user.id

    @retry_on_conflict
    async def _store(self, user: User, password_hash: str) -> None:
        async with self._changes.transaction() as transaction:
            await self._users.store_new(transaction, user, password_hash)
            await open_enrolment(transaction.connection, self._tenant_id, user.id)


def _reaches(found: InvitationFound, user: User) -> bool:
    return is_same_mailbox(user.primary_email or "", found.invitee)
