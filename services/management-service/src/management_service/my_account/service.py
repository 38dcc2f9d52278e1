"""Reads and changes the account of the person who is signed in."""

import time
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.access.callers import Caller
from identity_common.failures import Conflict, Issue, invalid_input
from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext
from management_service.impersonations.stories import ImpersonationStory
from management_service.links.recovery import password_changed
from management_service.links.verification import EmailVerifications
from management_service.my_account import rules
from management_service.my_account.store import find_names
from management_service.passwords.attempts import MY_ACCOUNT, SignInAttempts
from management_service.passwords.counted import CountedPasswords
from management_service.passwords.hashing import MAX_WAIT_S, Passwords
from management_service.passwords.store import PasswordHash, find_password_hash_of
from management_service.provider_people import signs_in_at_provider
from management_service.users.rules import UserUpdate, language_of
from management_service.users.service import Users
from management_service.users.store import User, lock_user

_log = get_logger(__name__)


def _wrong_password() -> Conflict:
    message = "The current password is not this one, or it has just been changed."
    return Conflict("session.invalid_credentials", message)


def _same_password() -> Conflict:
    return Conflict("user.same_password", "The new password must differ from the current one.")


class MyAccounts:
    """The accounts of a tenant, each changed by its person alone; administrators use ``Users``."""

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        users: Users,
        passwords: Passwords,
        attempts: SignInAttempts,
        verifications: EmailVerifications,
        mail: MailOutbox,
        *,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._users = users
        self._passwords = passwords
        self._attempts = attempts
        self._counted = CountedPasswords(passwords, attempts)
        self._verifications = verifications
        self._mail = mail
        self._tenant_id = tenant_id

    @property
    def can_change_email(self) -> bool:
        """Whether people can change their e-mail address: this deployment sends mail."""
        return self._verifications.is_mail_sent

    async def can_change_password(self, user_id: str) -> bool:
        """Return whether a person may have a new password; one of a provider's people could not use it."""
        async with self._reader.connect() as connection:
            return not await signs_in_at_provider(connection, self._tenant_id, user_id)

    async def get(self, user_id: str) -> User:
        """Return the person's user."""
        return await self._users.get(user_id)

    async def named(self, stories: Sequence[ImpersonationStory]) -> list[rules.MyImpersonation]:
        """Return impersonations with the names of those who act."""
        ids = {each for story in stories for each in (story.actor_id, story.client_id) if each is not None}
        if not ids:
            return [rules.named(each, {}) for each in stories]
        async with self._reader.connect() as connection:
            names = await find_names(connection, self._tenant_id, ids)
        return [rules.named(each, names) for each in stories]

    async def update(self, user_id: str, update: rules.MyAccountUpdate) -> User:
        """Change the given members.

        Raises:
            Conflict: The user name is in use, a name is not valid, or nothing would remain to sign in with.
        """
        members = UserUpdate(username=update.username, name=update.name, avatar=update.avatar)
        return await self._users.update(user_id, members, keeps_identifier=True)

    async def update_profile(self, user_id: str, update: rules.MyProfileUpdate) -> User:
        """Change the given members of the profile.

        Raises:
            Invalid: A member is not valid.
        """
        problems = list(rules.profile_problems(update))
        if problems:
            raise invalid_input(*problems)
        return await self._users.merge_profile(user_id, rules.profile_members(update))

    async def request_email(self, caller: Caller, email: str) -> None:
        """Mail a link to a new e-mail address; the account changes once the person has followed it.

        Raises:
            Invalid: It cannot be an e-mail address.
            Conflict: No mail is sent here.
            TooManyAttempts: Too many mails were requested for the address, or by the person.
        """
        user = await self._users.get(caller.user_id or "")
        await self._verifications.request(user.id, email, _context(caller, user))

    async def set_password(self, caller: Caller, change: rules.MyPassword) -> None:
        """Set a new password, which invalidates all earlier tokens, and tell the person by mail.

        Raises:
            Invalid: The current password is missing.
            Conflict: The current password is wrong, or the new one is the same.
            TooManyAttempts: Too many current passwords were wrong.
            Busy: Too many passwords are being checked.
        """
        async with self._reader.connect() as connection:
            found = await find_password_hash_of(connection, self._tenant_id, caller.user_id or "")
        if found is None:
            raise _wrong_password()
        await self._require_current(found, change)
        await self._store_password(caller, found, await self._passwords.hash(change.password))

    async def _require_current(self, found: PasswordHash, change: rules.MyPassword) -> None:
        if change.current_password is None:
            if found.password_hash is not None:
                raise invalid_input(Issue(path="currentPassword", message="required"))
            return
        account, deadline = self._attempts.account(found, ""), time.monotonic() + MAX_WAIT_S
        with self._passwords.admitted(deadline):
            is_correct = await self._counted.verify(
                account, MY_ACCOUNT, found.password_hash, change.current_password, deadline=deadline
            )
        if not is_correct:
            _log.info("my-account.password-refused", user_id=found.id)
            raise _wrong_password()
        if rules.are_same(change.current_password, change.password):
            raise _same_password()

    @retry_on_conflict
    async def _store_password(self, caller: Caller, found: PasswordHash, password_hash: str) -> None:
        async with self._changes.transaction() as transaction:
            user = await lock_user(transaction.connection, self._tenant_id, found.id)
            # It changes with the password, so that of two who knew the earlier one only the first succeeds.
            if user is None or user.tokens_valid_after != found.tokens_valid_after:
                raise _wrong_password()
            await self._users.store_password(transaction, user, password_hash)
            if user.primary_email is not None:
                await self._mail.queue(transaction.connection, password_changed(user, _context(caller, user)))


def _context(caller: Caller, user: User) -> LinkContext:
    """Return how mail to a person speaks: in their language, for the application at which they changed something."""
    return LinkContext(language=language_of(user.profile), application_id=caller.application_id)
