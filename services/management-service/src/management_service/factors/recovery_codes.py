"""Recovery codes: each stands in for any second factor, once.

Their attempts are not limited, since no one can guess one: a limit would only let others lock a user out.
"""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import FactorAccepted, NewRecoveryCodes, VerifyCode
from identity_common.wire.factors import RecoveryCodes as NewCodes
from management_service.factors import notices
from management_service.factors.changes import FactorChanges, context_of
from management_service.factors.codes import canonical_code, code_sha256
from management_service.factors.recovery_code_store import is_code, take_code
from management_service.factors.rules import FactorRefusedError
from management_service.users.store import User, lock_user
from management_service.visitors import audit_visitor

_log = get_logger(__name__)

_KIND: Final = "recovery-codes"


class RecoveryCodes:
    """The recovery codes of one tenant's users."""

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        factor_changes: FactorChanges,
        mail: MailOutbox,
        *,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._factor_changes = factor_changes
        self._mail = mail
        self._tenant_id = tenant_id

    @retry_on_conflict
    async def renew(self, question: NewRecoveryCodes) -> NewCodes:
        """Make new codes in place of the earlier ones.

        Raises:
            FactorRefusedError: The sign-in may not change factors, or the user has none.
        """
        audit_visitor("RenewRecoveryCodes", question.user_id, question.visitor)
        async with self._changes.transaction() as transaction:
            user = await self._factor_changes.admit(transaction, question)
            codes = await self._factor_changes.make_recovery_codes(transaction.connection, user.id)
            transaction.record_action(_KIND, (user.id,), "create")
        _log.info("recovery-codes.renewed", user_id=user.id)
        return NewCodes(codes=codes)

    async def spend(self, question: VerifyCode) -> FactorAccepted:
        """Spend a code; of concurrent requests with the same one only one succeeds.

        Raises:
            FactorRefusedError: ``wrong-code``; or ``not-accepted``: there is no such user, or one that is suspended.
        """
        sha256 = code_sha256(question.user_id, canonical_code(question.code))
        async with self._reader.connect() as connection:  # no user is locked for a wrong code
            is_known = await is_code(connection, self._tenant_id, question.user_id, sha256)
        if not is_known:
            _log.info("recovery-code.refused", user_id=question.user_id, address=question.visitor.address)
            raise FactorRefusedError("wrong-code")
        audit_visitor("UseRecoveryCode", question.user_id, question.visitor)
        accepted = await self._spend(question, sha256)
        _log.info("recovery-code.used", user_id=accepted.user_id)
        return accepted

    @retry_on_conflict
    async def _spend(self, question: VerifyCode, sha256: str) -> FactorAccepted:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            user = _signing_in(await lock_user(connection, self._tenant_id, question.user_id))
            left = await take_code(connection, self._tenant_id, user.id, sha256)
            if left is None:
                raise FactorRefusedError("wrong-code")
            transaction.record_action(_KIND, (user.id,), "use")
            await self._mail.queue(connection, notices.recovery_code_used(user, context_of(question), left=left))
        return FactorAccepted(
            user_id=user.id,
            method="recovery-code",
            tokens_valid_after=user.tokens_valid_after,
            revision=transaction.revision,
            recovery_codes=left,
        )


def _signing_in(user: User | None) -> User:
    if user is None or user.is_suspended:
        raise FactorRefusedError("not-accepted")
    return user
