"""Forgotten passwords: mails a link to the address of an account, and sets a new password through it."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.email_addresses import is_same_mailbox
from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail
from management_service.factors.enrolments import open_enrolment
from management_service.links.rules import RECOVERY_S, LinkNotValidError, address_subject, counted_as, path_of
from management_service.links.store import MailedLinks, OpenedLink
from management_service.passwords.hashing import Passwords
from management_service.provider_people import signs_in_at_provider
from management_service.users.service import Users
from management_service.users.store import User, find_user_by_email

_log = get_logger(__name__)

_KIND: Final = "password-recovery"
_PAGE: Final = "/sign-in/recovery"
_FORGOTTEN: Final = "/sign-in/forgotten"
_MINUTE_S: Final = 60


class PasswordRecovery:
    """Lets users who have forgotten their password choose another one.

    Args:
        limit: Limits mails by recipient.
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
        self._tenant_id = tenant_id

    async def request(self, address: str, context: LinkContext, *, visitor_address: str) -> None:
        """Mail a link to an account's address, if there is one.

        Nothing tells a known address from an unknown one: both take the same steps, and the unknown one queues a mail
        without a recipient. The mail goes to the stored address, never to the text that was typed, which may be another
        one that only compares equal.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, StoreUnavailable: A store does not answer.
        """
        if await self._limit.count(counted_as(_KIND, address_subject(address))) is not None:
            _log.info("recovery.throttled", address=visitor_address)
            return
        async with self._changes.unpublished() as connection:
            found = await find_user_by_email(connection, self._tenant_id, address)
            is_closed = await signs_in_at_provider(connection, self._tenant_id, found.id if found else "")
            is_usable = found is not None and found.has_password and not found.is_suspended and not is_closed
            user = found if is_usable else None
            recipient = (user.primary_email or "") if user else ""
            value, expires_at = await self._links.put(
                connection,
                _KIND,
                address_subject(address),
                address=recipient,
                context=context,
                lifetime_s=RECOVERY_S,
                user_id=user.id if user else None,
                tokens_valid_after=user.tokens_valid_after if user else None,
            )
            mail = Mail(
                kind=_KIND,
                recipient=recipient,
                language=context.language,
                application_id=context.application_id,
                user_id=user.id if user else None,
                expires_at=expires_at,
                values={"link": path_of(_PAGE, value), "minutes": str(RECOVERY_S // _MINUTE_S)},
            )
            await self._mail.queue(connection, mail)
        _log.info("recovery.requested", user_id=found.id if found else None, address=visitor_address)

    async def find(self, value: str) -> OpenedLink:
        """Return what a link opens; this changes nothing.

        Raises:
            LinkNotValidError: The link is not valid, or not any more.
        """
        async with self._reader.connect() as connection:
            opened = _valid(await self._links.open(connection, _KIND, value))
            await self._require_password(connection, opened.user)
            return opened

    async def complete(self, opened: OpenedLink, value: str, password: str) -> LinkContext:
        """Set the password of the account, which spends the link and ends all sessions; return the link's context.

        Of concurrent requests only one succeeds.

        Args:
            opened: What ``find`` has found: no password is hashed for a link that is not valid.
            value: Of the link.
            password: An acceptable password.

        Raises:
            LinkNotValidError: The link is not valid any more.
            Busy: The password cannot be hashed in time.
        """
        await self._set_password(value, opened.user.id, await self._passwords.hash(password))
        _log.info("recovery.completed", user_id=opened.user.id)
        return opened.link.context

    @retry_on_conflict
    async def _set_password(self, value: str, user_id: str, password_hash: str) -> None:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            spent = _valid(await self._links.spend(connection, _KIND, value, user_id=user_id))
            await self._require_password(connection, spent.user)
            await self._users.store_password(transaction, spent.user, password_hash)
            await open_enrolment(connection, self._tenant_id, user_id)
            await self._mail.queue(connection, password_changed(spent.user, spent.link.context))

    async def _require_password(self, connection: AsyncConnection, user: User) -> None:
        if await signs_in_at_provider(connection, self._tenant_id, user.id):
            raise LinkNotValidError


def password_changed(user: User, context: LinkContext) -> Mail:
    """Return the mail that tells a user of a new password, with the way to another one."""
    return Mail(
        kind="password-changed",
        recipient=user.primary_email or "",
        language=context.language,
        application_id=context.application_id,
        user_id=user.id,
        values={"link": _FORGOTTEN},
    )


def _valid(opened: OpenedLink) -> OpenedLink:
    """Return a link whose account is as it was when the link was requested.

    A new password and a suspension end the link together with the account's tokens; another address, because the link
    proves only that its reader receives mail at the earlier one.

    Raises:
        LinkNotValidError: The account has changed.
    """
    link, user = opened.link, opened.user
    is_same_address = is_same_mailbox(user.primary_email or "", link.address)
    if user.tokens_valid_after != link.tokens_valid_after or not is_same_address:
        raise LinkNotValidError
    return opened
