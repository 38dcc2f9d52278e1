"""Registration: mails a link to an address, and creates the account of the person who receives it."""

from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail
from identity_common.wire.organization_invitations import Invited, IsInvited
from management_service.factors.enrolments import open_enrolment
from management_service.links.rules import (
    REGISTRATION_S,
    LinkNotValidError,
    MailedLink,
    address_subject,
    counted_as,
    path_of,
)
from management_service.links.store import MailedLinks
from management_service.organization_invitations import OrganizationInvitations
from management_service.passwords.hashing import Passwords
from management_service.provider_people import belongs_to_provider
from management_service.sign_in_policy.rules import SignInPolicy, may_register
from management_service.sign_in_policy.store import find_policy
from management_service.users.rules import UserCreation, canonical
from management_service.users.service import Users
from management_service.users.store import User, find_user_by_email
from management_service.visitors import creating_account

_log = get_logger(__name__)

_KIND: Final = "registration"
_PAGE: Final = "/sign-in/registration"
_ACCOUNT: Final = "/account"
_MINUTE_S: Final = 60


class NewAccount(msgspec.Struct, frozen=True):
    """An account that was created.

    Attributes:
        revision: Management revision of its creation.
        context: Where its link was requested.
    """

    user_id: str
    revision: int
    context: LinkContext


class Registration:
    """Lets people create their own account, where the policy of signing in allows it.

    Args:
        limit: Limits mails by recipient.
        invitations: Tells which addresses are invited.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        passwords: Passwords,
        links: MailedLinks,
        mail: MailOutbox,
        limit: SourceLimit,
        invitations: OrganizationInvitations,
        *,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._passwords = passwords
        self._links = links
        self._mail = mail
        self._limit = limit
        self._invitations = invitations
        self._tenant_id = tenant_id

    async def request(self, address: str, context: LinkContext, *, visitor_address: str) -> None:
        """Mail a link to an address that may register, and a notice to the address of an account.

        Nothing tells these and all others apart: they take the same steps, and the others queue a mail without a
        recipient.

        Raises:
            TemporarilyUnavailable: template-service, which knows who is invited, does not answer.
            sqlalchemy.exc.SQLAlchemyError, StoreUnavailable: A store does not answer.
        """
        address = canonical(address)
        is_invited = await self._is_invited(address)  # first: what fails here must not use up the limit
        if await self._limit.count(counted_as(_KIND, address_subject(address))) is not None:
            _log.info("registration.throttled", address=visitor_address)
            return
        async with self._changes.unpublished() as connection:
            policy = await self._policy(connection)
            user = await find_user_by_email(connection, self._tenant_id, address)
            is_closed = await belongs_to_provider(connection, self._tenant_id, address)
            is_open = user is None and not is_closed and may_register(policy, address, is_invited=is_invited)
            recipient = address if is_open else ""
            value, expires_at = await self._links.put(
                connection,
                _KIND,
                address_subject(address),
                address=recipient,
                context=context,
                lifetime_s=REGISTRATION_S,
            )
            if user is None:
                mail = Mail(
                    kind="registration",
                    recipient=recipient,
                    language=context.language,
                    application_id=context.application_id,
                    expires_at=expires_at,
                    values={"link": path_of(_PAGE, value), "minutes": str(REGISTRATION_S // _MINUTE_S)},
                )
            else:
                mail = _notice(policy, user, context)
            await self._mail.queue(connection, mail)
        _log.info("registration.requested", user_id=user.id if user else None, address=visitor_address)

    async def find(self, value: str) -> MailedLink:
        """Return a link whose address may still register; this changes nothing.

        Raises:
            LinkNotValidError: The link is not valid, or not any more.
            TemporarilyUnavailable: template-service, which knows who is invited, does not answer.
        """
        async with self._reader.connect() as connection:
            link, policy = await self._links.find(connection, _KIND, value), await self._policy(connection)
            await self._require_open(connection, link)
        is_invited = link is not None and await self._is_invited(link.address)
        return _valid(link, policy, is_invited=is_invited)

    async def complete(self, link: MailedLink, value: str, user: User, password: str) -> NewAccount:
        """Create an account, which spends the link; of concurrent requests only one succeeds.

        Args:
            link: What ``find`` has found: no password is hashed for a link that is not valid.
            value: Of the link.
            user: What ``new_user`` has returned.
            password: An acceptable password.

        Raises:
            LinkNotValidError: The link is not valid any more.
            Conflict: Another account has the address.
            DefaultRolesRefusedError: The default roles grant scopes of the Management API.
            Busy: The password cannot be hashed in time.
            TemporarilyUnavailable: template-service, which knows who is invited, does not answer.
        """
        password_hash = await self._passwords.hash(password)
        is_invited = await self._is_invited(link.address)
        with creating_account():
            revision = await self._create(value, user, password_hash, is_invited=is_invited)
        _log.info("registration.completed", user_id=user.id)
        return NewAccount(user.id, revision, link.context)

    def new_user(self, link: MailedLink, name: str) -> User:
        """Return the user of an account that is about to be created: the link proves its e-mail address."""
        user = self._users.new_user(UserCreation(name=name, primary_email=link.address, is_email_verified=True))
        return msgspec.structs.replace(user, has_password=True)

    @retry_on_conflict
    async def _create(self, value: str, user: User, password_hash: str, *, is_invited: bool) -> int:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            link, policy = await self._links.take(connection, _KIND, value), await self._policy(connection)
            _valid(link, policy, is_invited=is_invited)
            await self._require_open(connection, link)
            await self._users.store_new(transaction, user, password_hash)
            await open_enrolment(connection, self._tenant_id, user.id)
        return transaction.revision

    async def _require_open(self, connection: AsyncConnection, link: MailedLink | None) -> None:
        """Refuse an address whose owner signs in at a provider."""
        if link is not None and await belongs_to_provider(connection, self._tenant_id, link.address):
            raise LinkNotValidError

    async def _is_invited(self, address: str) -> bool:
        """Return whether an address is invited, where the policy asks for it; not within a transaction."""
        async with self._reader.connect() as connection:
            policy = await self._policy(connection)
        if policy.registration != "invited":
            return False
        answer = await self._invitations.ask(IsInvited(email=address), Invited)
        return isinstance(answer, Invited) and answer.is_invited

    async def _policy(self, connection: AsyncConnection) -> SignInPolicy:
        found = await find_policy(connection, self._tenant_id)
        return found or SignInPolicy(tenant_id=self._tenant_id)


def _notice(policy: SignInPolicy, user: User, context: LinkContext) -> Mail:
    """Return the mail that tells a user of an attempt to register with the address of the account."""
    return Mail(
        kind="already-registered",
        recipient="" if policy.registration == "off" else user.primary_email or "",
        language=context.language,
        application_id=context.application_id,
        user_id=user.id,
        values={"link": _ACCOUNT},
    )


def _valid(link: MailedLink | None, policy: SignInPolicy, *, is_invited: bool) -> MailedLink:
    if link is None or not may_register(policy, link.address, is_invited=is_invited):
        raise LinkNotValidError
    return link
