"""Passkeys: verified at a sign-in, and created."""

from collections.abc import Callable
from typing import Final

from msgspec import structs
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import (
    AddPasskey,
    BeginPasskey,
    FactorAccepted,
    FactorAdded,
    PasskeyBegun,
    VerifyPasskey,
)
from management_service.factors import passkey_store as store
from management_service.factors.ceremonies import Assertion, Ceremonies, NewCredential, base64url
from management_service.factors.changes import FactorChanges
from management_service.factors.enrolment_store import count_factors
from management_service.factors.enrolments import Enrolments
from management_service.factors.passkey_store import OwnedPasskey, Passkey
from management_service.factors.rules import MAX_PASSKEYS, FactorRefusedError, has_gone_back, passkey_name
from management_service.provider_people import signs_in_at_provider
from management_service.users.store import find_user
from management_service.visitors import audit_visitor

_log = get_logger(__name__)

AGGREGATE: Final = "passkey"
"""Kind of the aggregate in the audit trail."""


class Passkeys:
    """The passkeys of one tenant. Its methods raise ``FactorRefusedError``."""

    def __init__(
        self,
        lookups: Lookups,
        changes: Changes,
        factor_changes: FactorChanges,
        enrolments: Enrolments,
        ceremonies: Ceremonies,
        is_link_of: Callable[[str | None, str], bool],
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._lookups = lookups
        self._changes = changes
        self._factor_changes = factor_changes
        self._enrolments = enrolments
        self._ceremonies = ceremonies
        self._is_link_of = is_link_of  # returns whether a link is to an account, which may confirm it
        self._tenant_id = tenant_id
        self._clock = clock

    async def verify(self, question: VerifyPasskey) -> FactorAccepted:
        """Return whose passkey has answered the challenge.

        A counter that has gone back means that the passkey was copied; the audit trail has an entry then.
        """
        self._ceremonies.require_same(question.rp_id)
        assertion = self._ceremonies.parse(question.credential)
        while True:
            owned = await self._owned(assertion, question)
            used = await self._judged(owned, assertion, question)
            async with self._changes.unpublished() as connection:
                await self._require_way_in(connection, used.user_id, question)
                is_noted = await store.note_use(connection, used, earlier_count=owned.passkey.sign_count)
            if is_noted:
                return FactorAccepted(
                    user_id=used.user_id,
                    method="passkey",
                    tokens_valid_after=owned.tokens_valid_after,
                    revision=owned.revision,
                )
            # A simultaneous use has moved the counter on, or the passkey was removed: it is judged again.

    async def _judged(self, owned: OwnedPasskey, assertion: Assertion, question: VerifyPasskey) -> Passkey:
        """Verify the assertion; return the passkey as of this use."""
        passkey = owned.passkey
        verified = self._ceremonies.verify(assertion, question.challenge, public_key=passkey.public_key)
        if verified.is_backup_eligible is not passkey.is_backup_eligible:
            raise FactorRefusedError("not-accepted")
        if has_gone_back(passkey.sign_count, verified.sign_count):
            await self._record_copy(owned, question)
            raise FactorRefusedError("not-accepted")
        return structs.replace(
            passkey,
            sign_count=verified.sign_count,
            is_backed_up=verified.is_backed_up,
            last_used_at=self._clock(),
        )

    async def _owned(self, assertion: Assertion, question: VerifyPasskey) -> OwnedPasskey:
        """Return the passkey, if the user may sign in with it (WebAuthn Level 3 section 7.2)."""
        found = await store.look_up_passkey(self._lookups, self._tenant_id, assertion.credential_id)
        if found is None or found.is_suspended:
            raise FactorRefusedError("not-accepted")
        is_owner_known = question.user_id is not None or assertion.user_handle is not None
        is_owner = question.user_id in {None, found.passkey.user_id}
        if not (is_owner_known and is_owner and assertion.user_handle in {None, found.handle}):
            raise FactorRefusedError("not-accepted")
        return found

    async def _require_way_in(self, connection: AsyncConnection, user_id: str, question: VerifyPasskey) -> None:
        """Refuse a passkey in place of a provider: it would go on after its owner was removed there."""
        if question.user_id is not None or self._is_link_of(question.link, user_id):
            return
        if await signs_in_at_provider(connection, self._tenant_id, user_id):
            raise FactorRefusedError("not-accepted")

    async def _record_copy(self, owned: OwnedPasskey, question: VerifyPasskey) -> None:
        passkey = owned.passkey
        _log.warning("passkey.counter-went-back", user_id=passkey.user_id, ids=passkey.id)
        audit_visitor("VerifyPasskey", passkey.user_id, question.visitor)
        await self._changes.record_action(AGGREGATE, (passkey.user_id, passkey.id), "refuse")

    async def begin(self, question: BeginPasskey) -> PasskeyBegun:
        """Return what a browser needs to create a passkey for a user."""
        self._ceremonies.require_same(question.rp_id)
        async with self._changes.unpublished() as connection:
            user = await find_user(connection, self._tenant_id, question.user_id)
            if user is None or user.is_suspended:
                raise FactorRefusedError("not-accepted")
            handle = await store.user_handle(connection, self._tenant_id, user.id)
            existing = await store.find_passkeys(connection, self._tenant_id, user.id)
        if len(existing) >= MAX_PASSKEYS:
            raise FactorRefusedError("too-many")
        name = user.identifier or user.id
        return PasskeyBegun(
            user_handle=base64url(handle),
            name=name,
            display_name=user.name or name,
            existing=tuple(base64url(each.credential_id) for each in existing),
        )

    async def add(self, question: AddPasskey) -> FactorAdded:
        """Store a passkey that was created with the challenge; its key comes from the ceremony alone.

        Refused besides what ``FactorChanges.admit`` refuses: ``too-many``; ``not-accepted``: the passkey is known.
        """
        made = self._ceremonies.created(question.credential, question.challenge)
        await self._enrolments.count_attempt(question)
        audit_visitor("AddPasskey", question.user_id, question.visitor)
        added = await self._add(question, made)
        _log.info("passkey.added", user_id=question.user_id, address=question.visitor.address)
        return added

    @retry_on_conflict
    async def _add(self, question: AddPasskey, made: NewCredential) -> FactorAdded:
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            user = await self._factor_changes.admit(transaction, question)
            if (await count_factors(connection, self._tenant_id, user.id)).passkeys >= MAX_PASSKEYS:
                raise FactorRefusedError("too-many")
            passkey = Passkey(
                **structs.asdict(made),
                tenant_id=self._tenant_id,
                id=new_id(),
                user_id=user.id,
                name=passkey_name(question.name, made.aaguid),
                created_at=self._clock(),
            )
            await store.user_handle(connection, self._tenant_id, user.id)
            if not await store.insert_passkey(connection, passkey):
                raise FactorRefusedError("not-accepted")
            codes = await self._factor_changes.added(transaction, user, "passkey", question)
        return FactorAdded(method="passkey", revision=transaction.revision, recovery_codes=codes)
