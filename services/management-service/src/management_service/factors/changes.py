"""What every change of a user's factors does besides it: who may, what is published, and who is told."""

from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.authentication import FactorKind
from identity_common.clock import Clock, now_ms
from identity_common.outbox.changes import Transaction
from identity_common.outbox.mail import MailOutbox
from identity_common.wire.account_links import LinkContext
from identity_common.wire.factors import AddAuthenticator, AddPasskey, NewRecoveryCodes, VerifyCode
from management_service.factors import enrolment_store as store
from management_service.factors import notices
from management_service.factors.codes import canonical_code, code_sha256, new_recovery_codes
from management_service.factors.enrolments import Enrolments
from management_service.factors.recovery_code_store import replace_codes
from management_service.factors.rules import FactorRefusedError, enrolment_refusal
from management_service.sign_in_policy.store import find_policy
from management_service.users.service import Users
from management_service.users.store import User, lock_user


class FactorChanges:
    """Changes of the factors of one tenant's users, each in the transaction of the use case that makes it.

    Args:
        enrolments: Lets users set up a first factor.
    """

    def __init__(
        self, users: Users, enrolments: Enrolments, mail: MailOutbox, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self._users = users
        self._enrolments = enrolments
        self._mail = mail
        self._tenant_id = tenant_id
        self._clock = clock

    async def admit(self, transaction: Transaction, question: AddAuthenticator | AddPasskey | NewRecoveryCodes) -> User:
        """Lock the user of a request and return it, if the sign-in may change its factors.

        The first factor uses up the leave for it.

        Raises:
            FactorRefusedError: It may not.
        """
        connection = transaction.connection
        user = await lock_user(connection, self._tenant_id, question.user_id)
        policy = await find_policy(connection, self._tenant_id)
        if user is None or user.is_suspended:
            raise FactorRefusedError("not-accepted")
        mode = "optional" if policy is None else policy.second_factor
        refusal = enrolment_refusal(mode, user.second_factors, question.signed_in, now=self._clock())
        if refusal is not None:
            raise FactorRefusedError(refusal)
        if question.signed_in.valid_since < user.tokens_valid_after:  # it has ended since
            raise FactorRefusedError("sign-in-again")
        if not user.second_factors:
            if isinstance(question, NewRecoveryCodes):
                raise FactorRefusedError("not-accepted")
            await self._enrolments.spend(connection, user.id, question.code)
        return user

    async def added(
        self, transaction: Transaction, user: User, kind: FactorKind, question: AddAuthenticator | AddPasskey
    ) -> tuple[str, ...]:
        """Publish and tell what was set up; return new recovery codes with the first factor."""
        if await self._publish(transaction, user) is user:  # one more of its kind: no event is published
            transaction.record_action(kind, (user.id,), "create")
        await self._mail.queue(transaction.connection, notices.added(user, kind, context_of(question)))
        return () if user.second_factors else await self.make_recovery_codes(transaction.connection, user.id)

    async def make_recovery_codes(self, connection: AsyncConnection, user_id: str) -> tuple[str, ...]:
        """Make ten recovery codes in place of the earlier ones, and return them."""
        codes = new_recovery_codes()
        hashes = [code_sha256(user_id, canonical_code(code)) for code in codes]
        await replace_codes(connection, self._tenant_id, user_id, hashes, now=self._clock())
        return codes

    async def removed(
        self,
        transaction: Transaction,
        user: User,
        kind: FactorKind | Literal["all"],
        context: LinkContext,
        *,
        by_administrator: bool,
    ) -> User:
        """Publish and tell what was removed of a locked user; without any factor, recovery codes end, too."""
        changed = await self._publish(transaction, user)
        if not changed.second_factors:
            await store.delete_factors(transaction.connection, self._tenant_id, user.id)
        mail = notices.removed(user, kind, context, by_administrator=by_administrator)
        await self._mail.queue(transaction.connection, mail)
        return changed

    async def remove_all(self, transaction: Transaction, user: User, context: LinkContext) -> User:
        """Remove all factors of a locked user, its recovery codes, and leave to set up a first factor."""
        await store.delete_factors(transaction.connection, self._tenant_id, user.id)
        return await self.removed(transaction, user, "all", context, by_administrator=True)

    async def _publish(self, transaction: Transaction, user: User) -> User:
        armed = await store.count_factors(transaction.connection, self._tenant_id, user.id)
        kinds: tuple[FactorKind, ...] = (
            *(("authenticator",) if armed.authenticators else ()),
            *(("passkey",) if armed.passkeys else ()),
        )
        return await self._users.store_second_factors(transaction, user, kinds)


def context_of(question: AddAuthenticator | AddPasskey | NewRecoveryCodes | VerifyCode) -> LinkContext:
    """Return how mail about a request speaks."""
    return LinkContext(language=question.language, application_id=question.application_id)
