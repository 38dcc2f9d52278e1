"""Leave to set up a first factor: a code that was mailed or handed out, or a mailed link that has set the password.

So a thief of a password does not set up a factor before its owner does.
"""

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.outbox.changes import Changes
from identity_common.outbox.mail import MailOutbox
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.stores.source_limit import SourceLimit
from identity_common.telemetry.logs import get_logger
from identity_common.wire.account_links import LinkContext
from identity_common.wire.factors import AddAuthenticator, AddPasskey, ArmedFactors, CodeSent, SendEnrolmentCode
from management_service.factors import enrolment_store as store
from management_service.factors import notices
from management_service.factors.ceremonies import base64url
from management_service.factors.codes import (
    canonical_code,
    code_sha256,
    masked,
    new_handed_out_code,
    new_mailed_code,
)
from management_service.factors.enrolment_store import Enrolment
from management_service.factors.rules import FactorRefusedError
from management_service.sign_in_policy.store import find_policy
from management_service.users.store import User, find_user, lock_user
from management_service.visitors import audit_visitor

_log = get_logger(__name__)

MAILED_CODE_S: Final = 15 * 60
"""Lifetime of a code that is mailed."""
MAILED_CODE_ATTEMPTS: Final = 5
"""How many codes can be tried until a mailed one ends."""
HANDED_OUT_CODE_S: Final = 24 * 60 * 60
"""Lifetime of a code that an administrator or operator hands out."""
LINK_S: Final = 15 * 60
"""For how long a user may set up a first factor after a mailed link has set the password."""

NEW_ADDRESS_S: Final = 7 * 24 * 60 * 60
"""For how long mail gives no leave after its user has changed the address: a password is enough to change it, so it may
be a thief's. The earlier address has been told."""

_MS_PER_S: Final = 1000
_MINUTE_S: Final = 60


async def open_enrolment(connection: AsyncConnection, tenant_id: str, user_id: str, *, now: int | None = None) -> None:
    """Let a user set up a first factor for some minutes, in the transaction that sets the password by a mailed link."""
    now = now_ms() if now is None else now
    if _is_withheld(await store.find_enrolments(connection, tenant_id, user_id, now=now)):
        return
    enrolment = Enrolment(tenant_id=tenant_id, user_id=user_id, origin="link", expires_at=now + LINK_S * _MS_PER_S)
    await store.put_enrolment(connection, enrolment, now=now)


async def withhold_enrolment(
    connection: AsyncConnection, tenant_id: str, user_id: str, *, now: int | None = None
) -> None:
    """Let mail give a user no leave for some days, in the transaction in which the user changes the address.

    A code that was mailed to the earlier address ends.
    """
    now = now_ms() if now is None else now
    expires_at = now + NEW_ADDRESS_S * _MS_PER_S
    withheld = Enrolment(tenant_id=tenant_id, user_id=user_id, origin="mail", code_sha256="", expires_at=expires_at)
    await store.put_enrolment(connection, withheld, now=now)


async def hand_out_code(
    connection: AsyncConnection, tenant_id: str, user_id: str, *, now: int | None = None
) -> tuple[str, int]:
    """Return a code that is handed out to a user, in place of an earlier such one, and when it expires.

    The transaction must have locked the user.
    """
    now = now_ms() if now is None else now
    code, expires_at = new_handed_out_code(), now + HANDED_OUT_CODE_S * _MS_PER_S
    await store.put_enrolment(connection, _coded(tenant_id, user_id, "handed-out", code, expires_at), now=now)
    return code, expires_at


class Enrolments:
    """The leave that the users of one tenant have.

    Args:
        limit: Limits mails by recipient.
        offers_passkeys: Whether there can be passkeys here.
        is_mail_sent: Whether this deployment sends mail.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        mail: MailOutbox,
        limit: SourceLimit,
        *,
        offers_passkeys: bool,
        is_mail_sent: bool,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._mail = mail
        self._limit = limit
        self._offers_passkeys = offers_passkeys
        self._is_mail_sent = is_mail_sent
        self._tenant_id = tenant_id
        self._clock = clock

    async def read(self, user_id: str) -> ArmedFactors:
        """Return what a user has set up, and what is needed to set up the first factor.

        Raises:
            FactorRefusedError: There is no such user.
        """
        found = await store.look_up_overview(self._lookups, self._tenant_id, user_id, now=self._clock())
        if found is None:
            raise FactorRefusedError("not-accepted")
        address = notices.verified_address(found) if self._is_mail_sent and not found.is_withheld else ""
        return ArmedFactors(
            passkeys=tuple(map(base64url, found.credential_ids)) if self._offers_passkeys else (),
            has_authenticator=found.has_authenticator,
            recovery_codes=found.recovery_codes,
            masked_email=masked(address) if address else None,
            needs_code=found.needs_code,
        )

    async def send_code(self, question: SendEnrolmentCode) -> CodeSent:
        """Mail a code, in place of an earlier mailed one, to a user without a factor.

        Raises:
            FactorRefusedError: ``off``, ``no-address``, ``throttled``; or ``not-accepted``: there is no such user, or
                one that has a factor.
        """
        async with self._reader.connect() as connection:
            policy = await find_policy(connection, self._tenant_id)
            user = await find_user(connection, self._tenant_id, question.user_id)
            if policy is not None and policy.second_factor == "off":
                raise FactorRefusedError("off")
            await self._require_recipient(connection, user)
        throttled = await self._limit.count(f"enrolment-code {question.user_id}")
        if throttled is not None:
            raise FactorRefusedError("throttled", retry_after_s=throttled.wait_s)
        audit_visitor("SendEnrolmentCode", question.user_id, question.visitor)
        await self._send(question)
        _log.info("enrolment-code.sent", user_id=question.user_id, address=question.visitor.address)
        return CodeSent(minutes=MAILED_CODE_S // _MINUTE_S)

    @retry_on_conflict
    async def _send(self, question: SendEnrolmentCode) -> None:
        context = LinkContext(language=question.language, application_id=question.application_id)
        code, expires_at = new_mailed_code(), self._clock() + MAILED_CODE_S * _MS_PER_S
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            locked = await lock_user(connection, self._tenant_id, question.user_id)
            user = await self._require_recipient(connection, locked)
            enrolment = _coded(self._tenant_id, user.id, "mail", code, expires_at)
            await store.put_enrolment(connection, enrolment, now=self._clock())
            mail = notices.enrolment_code(
                user, context, code=code, minutes=MAILED_CODE_S // _MINUTE_S, expires_at=expires_at
            )
            await self._mail.queue(connection, mail)
            transaction.record_action("enrolment-code", (user.id,), "create")

    async def _require_recipient(self, connection: AsyncConnection, user: User | None) -> User:
        if user is None or user.is_suspended or user.second_factors:
            raise FactorRefusedError("not-accepted")
        if not (self._is_mail_sent and notices.verified_address(user)):
            raise FactorRefusedError("no-address")
        if _is_withheld(await store.find_enrolments(connection, self._tenant_id, user.id, now=self._clock())):
            raise FactorRefusedError("no-address")
        return user

    async def create_code(self, connection: AsyncConnection, user_id: str) -> tuple[str, int]:
        """Return a code that is handed out to a user, as ``hand_out_code`` does."""
        return await hand_out_code(connection, self._tenant_id, user_id, now=self._clock())

    async def count_attempt(self, question: AddAuthenticator | AddPasskey) -> None:
        """Count a typed code before the transaction that compares it, so that concurrent ones all count.

        Raises:
            FactorRefusedError: Too many codes were tried since one was mailed, and this one was not handed out.
        """
        code = canonical_code(question.code)
        if not code:
            return
        async with self._changes.unpublished() as connection:
            found = await store.find_enrolments(connection, self._tenant_id, question.user_id, now=self._clock())
            if _accepts(found, question.user_id, code, origin="handed-out"):
                return
            attempts = await store.count_attempt(connection, self._tenant_id, question.user_id, now=self._clock())
        if attempts > MAILED_CODE_ATTEMPTS:
            raise FactorRefusedError("wrong-enrolment-code")

    async def spend(self, connection: AsyncConnection, user_id: str, typed: str) -> None:
        """Use up all leave of a locked user, who sets up the first factor.

        Raises:
            FactorRefusedError: The user has none, or the code is wrong.
        """
        found = await store.find_enrolments(connection, self._tenant_id, user_id, now=self._clock())
        code = canonical_code(typed)
        if not _accepts(found, user_id, code):
            raise FactorRefusedError("wrong-enrolment-code" if code else "enrolment-code-needed")
        await store.delete_enrolments(connection, self._tenant_id, user_id)


def _coded(tenant_id: str, user_id: str, origin: store.EnrolmentOrigin, code: str, expires_at: int) -> Enrolment:
    return Enrolment(
        tenant_id=tenant_id,
        user_id=user_id,
        origin=origin,
        code_sha256=code_sha256(user_id, canonical_code(code)),
        expires_at=expires_at,
    )


def _is_withheld(found: list[Enrolment]) -> bool:
    return any(each.is_withheld for each in found)


def _accepts(found: list[Enrolment], user_id: str, code: str, *, origin: store.EnrolmentOrigin | None = None) -> bool:
    """Return whether some leave, or that of one origin, needs no code or this one."""
    sha256 = code_sha256(user_id, code)
    return any(each.code_sha256 in {None, sha256} for each in found if origin in {None, each.origin})
