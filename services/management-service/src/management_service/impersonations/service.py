"""Ends impersonations."""

from typing import Final

from identity_common.access.callers import Caller
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable, missing_by_id
from identity_common.outbox.changes import Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.redis import RedisCommands
from identity_common.wire.impersonations import AGGREGATE, ImpersonationEnd, ImpersonationEndsState
from identity_common.wire.revocations import cutoff_id
from identity_common.wire.subject_tokens import BegunImpersonation, impersonation_key
from management_service.impersonations import store
from management_service.impersonations.register import ImpersonationRegister, is_requested_by
from management_service.impersonations.revoking import EndRevocations
from management_service.impersonations.rules import (
    MAX_IN_A_SLOT,
    is_well_formed,
    longest_life_ms,
    slot_of,
    too_many_ends,
)
from management_service.party_ends import ENDED, impersonation_party, put_party_end
from management_service.token_lifetimes import longest_lifetime_ms

_SLOTS_AT_ONCE: Final = 32


class Impersonations:
    """Ends impersonations.

    An end is committed, with its event for token-service; then it is written to the revocations, also if it was
    recorded before: that write may have failed. Only then is it acknowledged.

    Args:
        changes: Records ends.
        revocations: Makes token-service refuse their tokens from the answer on.
        redis: Has recent impersonations, including those that the audit trail does not have yet.
        register: Finds all impersonations in the audit trail.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        changes: Changes,
        revocations: EndRevocations,
        redis: RedisCommands,
        register: ImpersonationRegister,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._changes = changes
        self._revocations = revocations
        self._redis = redis
        self._register = register
        self._tenant_id = tenant_id
        self._clock = clock

    async def end(self, caller: Caller, impersonation_id: str) -> None:
        """End one impersonation and those within it.

        A caller with the scope ``impersonations:end`` may end any, even one that has left no trace: the id only has to
        be well-formed. Other callers may end those that they requested.

        Raises:
            NotFound: No impersonation has this id, or the caller did not request it.
            Conflict: The register of ends is full.
        """
        if not is_well_formed(impersonation_id):
            raise missing_by_id("entity.not_found")
        if not caller.may("impersonations:end"):
            begun = await self._begun(impersonation_id)
            if begun is None or not is_requested_by(caller, begun):
                raise missing_by_id("entity.not_found")
        await self._end_one(impersonation_id)

    async def end_own(self, user_id: str, impersonation_id: str) -> None:
        """End an impersonation in which a user is the subject; see ``end``.

        Raises:
            NotFound: The user is not the subject, or no impersonation has this id.
            Conflict: The register of ends is full.
        """
        begun = await self._begun(impersonation_id) if is_well_formed(impersonation_id) else None
        if begun is None or begun.user_id != user_id:
            raise missing_by_id("entity.not_found")
        await self._end_one(impersonation_id)

    async def _end_one(self, impersonation_id: str) -> None:
        await self._end(impersonation_party(impersonation_id), impersonation_id)

    async def end_all(self, ended: str) -> None:
        """End all impersonations of a party that have begun by now.

        Raises:
            Conflict: The register of ends is full.
        """
        await self._end(ended, cutoff_id(ended), is_of_all=True)

    async def _end(self, ended: str, end_id: str, *, is_of_all: bool = False) -> None:
        await self._revocations.write(await self._record(ended, end_id, is_of_all=is_of_all))

    async def _begun(self, impersonation_id: str) -> BegunImpersonation | None:
        """Return an impersonation's requester and subject, from Redis or else from the audit trail; None if unknown."""
        unavailable: StoreUnavailable | None = None
        try:
            (stored,) = await self._redis.execute("MGET", impersonation_key(self._tenant_id, impersonation_id))
        except StoreUnavailable as error:
            stored, unavailable = None, error
        if stored is not None:
            return BegunImpersonation.parse(stored)
        found = await self._register.find(impersonation_id)
        if found is not None:
            return BegunImpersonation(found.issued_to, found.user_id, found.requested_by)
        if unavailable is not None:
            raise unavailable
        return None

    @retry_on_conflict
    async def _record(self, ended: str, end_id: str, *, is_of_all: bool) -> ImpersonationEnd:
        slot, now = slot_of(end_id), self._clock()
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            await store.lock_slot(connection, self._tenant_id, slot)
            ends = await store.list_ends(connection, self._tenant_id, slot, now=now)
            end = None if is_of_all else next((each for each in ends if each.id == end_id), None)
            if end is None:
                if len(ends) >= MAX_IN_A_SLOT:
                    raise too_many_ends()
                expires_at = now + longest_life_ms(await longest_lifetime_ms(connection, self._tenant_id))
                end = ImpersonationEnd(end_id, expires_at, now if is_of_all else None)
                await put_party_end(connection, self._tenant_id, ended, ENDED, now=now)
                await store.put_end(connection, self._tenant_id, slot, end, now=now)
                await record_slot(transaction, self._tenant_id, slot, now=now)
        return end


async def record_slot(transaction: Transaction, tenant_id: str, slot: int, *, now: int) -> None:
    """Record the state of a slot that is locked."""
    ends = await store.list_ends(transaction.connection, tenant_id, slot, now=now)
    transaction.record(AGGREGATE, (str(slot),), "updated", ImpersonationEndsState(str(slot), ends=tuple(ends)))


async def record_slots(tenant_id: str, transaction: Transaction, after: str) -> str | None:
    """Record the next batch of slots again, for a republication; return its last slot, None if there are no more."""
    slots = await store.list_slots(transaction.connection, tenant_id, after=int(after or -1), count=_SLOTS_AT_ONCE)
    now = now_ms()
    for slot in slots:
        await store.lock_slot(transaction.connection, tenant_id, slot)
        await record_slot(transaction, tenant_id, slot, now=now)
    return str(slots[-1]) if slots else None
