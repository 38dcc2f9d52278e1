"""E-mail addresses: mails a link to one, and makes it the verified address of the account that wanted it."""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.email_addresses import is_email_address, is_same_mailbox
from identity_common.failures import Conflict, Issue, TooManyAttempts, invalid_input, missing_by_id
from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext
from identity_common.wire.mail import Mail
from management_service.factors.enrolments import withhold_enrolment
from management_service.links.rules import VERIFICATION_S, LinkNotValidError, address_subject, counted_as, path_of
from management_service.links.store import MailedLinks, OpenedLink
from management_service.provider_people import find_way_in
from management_service.users.rules import canonical
from management_service.users.service import Users
from management_service.users.store import lock_user

_log = get_logger(__name__)

_KIND: Final = "email-verification"
_PAGE: Final = "/sign-in/verification"
_MINUTE_S: Final = 60


class EmailVerifications:
    """Confirms that a user receives mail at an address.

    Attributes:
        is_mail_sent: Whether this deployment sends mail.

    Args:
        limit: Limits mails by user, who must not have mail sent to one address after the other; and by recipient, whose
            own requests do not count.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        links: MailedLinks,
        mail: MailOutbox,
        limit: SourceLimit,
        *,
        is_mail_sent: bool,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._links = links
        self._mail = mail
        self._limit = limit
        self.is_mail_sent = is_mail_sent
        self._tenant_id = tenant_id

    async def request_present(self, user_id: str) -> None:
        """Mail a link to a user's present address.

        Raises:
            Conflict: The user has no address, or it is verified, or no mail is sent here.
            TooManyAttempts: Too many mails were requested for the address, or for the user.
        """
        user = await self._users.get(user_id)
        if user.primary_email is None:
            raise Conflict("user.email_missing", "The user has no e-mail address.")
        if user.is_email_verified:
            raise Conflict("user.email_already_verified", "The e-mail address is verified.")
        await self.request(user_id, user.primary_email)

    async def request(self, user_id: str, address: str, context: LinkContext | None = None) -> None:
        """Mail a link to an address that a user wants to have; the account changes when the link is confirmed.

        Whether another account has the address is not said here, to a caller who has not proved to receive its mail.

        Raises:
            Invalid: It cannot be an e-mail address.
            Conflict: No mail is sent here, or the user signs in at a provider because of the present address.
            TooManyAttempts: Too many mails were requested for the address, or for the user.
        """
        if not is_email_address(address):
            raise invalid_input(Issue(path="email", message="must be an e-mail address"))
        if not self.is_mail_sent:
            raise Conflict("mail.not_configured", "No mail is sent here: an operator has to set SMTP_URL.")
        async with self._reader.connect() as connection:
            way_in = await find_way_in(connection, self._tenant_id, user_id)
        if way_in is None:
            raise missing_by_id()
        if way_in.opens_with(address):
            raise _leaves_provider()
        # Strangers who wish for an address use up its mails: they must not keep its owner from confirming it.
        is_present = is_same_mailbox(way_in.primary_email or "", address)
        for subject in (user_id,) if is_present else (user_id, address_subject(address)):
            throttled = await self._limit.count(counted_as(_KIND, subject))
            if throttled is not None:
                message = "Too many mails were requested for this address, or for this user. Try again later."
                raise TooManyAttempts("mail.too_many_to_recipient", message, retry_after_s=throttled.wait_s)
        await self._changes.record_action(_KIND, (user_id,), "create")
        await self._send(user_id, canonical(address), context or LinkContext())

    @retry_on_conflict
    async def _send(self, user_id: str, address: str, context: LinkContext) -> None:
        async with self._changes.unpublished() as connection:
            user = await lock_user(connection, self._tenant_id, user_id)
            if user is None:
                raise missing_by_id()
            value, expires_at = await self._links.put(
                connection,
                _KIND,
                user_id,
                address=address,
                context=context,
                lifetime_s=VERIFICATION_S,
                user_id=user_id,
                tokens_valid_after=user.tokens_valid_after,
            )
            mail = Mail(
                kind=_KIND,
                recipient=address,
                language=context.language,
                application_id=context.application_id,
                user_id=user_id,
                expires_at=expires_at,
                values={
                    "link": path_of(_PAGE, value),
                    "minutes": str(VERIFICATION_S // _MINUTE_S),
                    "account": user.identifier or "",
                },
            )
            await self._mail.queue(connection, mail)

    async def find(self, value: str) -> OpenedLink:
        """Return what a link opens; this changes nothing.

        Raises:
            LinkNotValidError: The link is not valid, or not any more.
        """
        async with self._reader.connect() as connection:
            return await self._require_valid(connection, await self._links.open(connection, _KIND, value))

    @retry_on_conflict
    async def confirm(self, opened: OpenedLink, value: str) -> LinkContext:
        """Make the address of a link the verified one of its account, which spends the link; return its context.

        The earlier address is told. A new one gives a user without a factor no leave to set up the first for some days.

        Args:
            opened: What ``find`` has found.
            value: Of the link.

        Raises:
            LinkNotValidError: The link is not valid any more.
            Conflict: Another user has the address, or it would end the last administrator.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            spent = await self._links.spend(connection, _KIND, value, user_id=opened.user.id)
            link, user = (await self._require_valid(connection, spent)).link, spent.user
            await self._users.store_verified_email(transaction, user, link.address)
            if not (_is_present(spent) or user.second_factors):
                await withhold_enrolment(connection, self._tenant_id, user.id)
            if user.primary_email is not None and not _is_present(spent):
                notice = Mail(
                    kind="email-changed",
                    recipient=user.primary_email,
                    language=link.context.language,
                    application_id=link.context.application_id,
                    user_id=user.id,
                    values={"address": link.address},
                )
                await self._mail.queue(connection, notice)
        _log.info("email.verified", user_id=user.id)
        return link.context

    async def _require_valid(self, connection: AsyncConnection, opened: OpenedLink) -> OpenedLink:
        """Return a link by which no one leaves a provider, and so keeps the account when the person is removed there.

        Raises:
            LinkNotValidError: The account has changed, or its user signs in at a provider since.
        """
        way_in = await find_way_in(connection, self._tenant_id, opened.user.id)
        if way_in is None or way_in.opens_with(opened.link.address):
            raise LinkNotValidError
        return _valid(opened)


def _leaves_provider() -> Conflict:
    message = "People with the present address sign in at a provider: an administrator has to change it."
    return Conflict("user.signs_in_at_provider", message)


def _is_present(opened: OpenedLink) -> bool:
    return is_same_mailbox(opened.user.primary_email or "", opened.link.address)


def _valid(opened: OpenedLink) -> OpenedLink:
    """Return a link whose account still wants the address.

    A link to another address ends with the account's tokens: a new password, or a suspension, may be the answer to a
    stolen session. That the present address receives mail stays true.

    Raises:
        LinkNotValidError: The account has changed.
    """
    is_as_requested = opened.user.tokens_valid_after == opened.link.tokens_valid_after
    if opened.user.is_suspended or not (is_as_requested or _is_present(opened)):
        raise LinkNotValidError
    return opened
