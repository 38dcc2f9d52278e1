"""Reads and changes the policy of impersonations."""

from collections.abc import Collection
from typing import Final

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.failures import unknown_relation, wrong_kind
from identity_common.fields import each_once
from identity_common.outbox.changes import Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.wire.events import ImpersonationPolicyState
from management_service.impersonation_policy import rules, store
from management_service.impersonation_policy.store import ImpersonationPolicy
from management_service.reachable_levels import require_reachable

AGGREGATE: Final = "impersonation-policy"
"""Kind of the aggregate on the bus; a tenant has one."""

_ID: Final = "tenant"


class ImpersonationPolicies:
    """The policy of one tenant.

    Args:
        reader: For queries.
        changes: For writes.
        tenant_id: The tenant.
        offers_passkeys: Whether passkeys can be used here.
    """

    def __init__(self, reader: AsyncEngine, changes: Changes, *, tenant_id: str, offers_passkeys: bool) -> None:
        self._reader = reader
        self._changes = changes
        self._tenant_id = tenant_id
        self._offers_passkeys = offers_passkeys

    async def get(self) -> ImpersonationPolicy:
        """Return the policy."""
        return await self.find() or ImpersonationPolicy(tenant_id=self._tenant_id)

    async def find(self) -> ImpersonationPolicy | None:
        """Return the policy; None if it was never set."""
        async with self._reader.connect() as connection:
            return await store.find_policy(connection, self._tenant_id)

    @retry_on_conflict
    async def update(self, update: rules.ImpersonationPolicyUpdate) -> ImpersonationPolicy:
        """Change the given members.

        Raises:
            Invalid: A name of a member of the context has blanks around it, or an invisible character.
            Conflict: A role is unknown, or not of the type ``User``; or no actor could sign in so strongly.
        """
        if update.require_context:
            rules.require_names(update.require_context)
        require_reachable(update.actor_acr, offers_passkeys=self._offers_passkeys)
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            # Roles before the policy, as where a role is deleted: two transactions cannot deadlock.
            await self._require_roles(connection, update.excluded_roles or ())
            policy = await store.lock_policy(connection, self._tenant_id)
            changed = _changed(policy, update)
            if changed != policy:
                await store.update_policy(connection, changed)
                _record(transaction, changed)
        return changed

    @retry_on_conflict
    async def begin_with(self, policy: ImpersonationPolicy) -> None:
        """Set the policy unless it was set before.

        Raises:
            Conflict: A role is unknown, or not of the type ``User``.
        """
        async with self._changes.transaction() as transaction:
            await self._require_roles(transaction.connection, policy.excluded_roles)
            if await store.insert_policy(transaction.connection, policy):
                _record(transaction, policy)

    async def _require_roles(self, connection: AsyncConnection, role_ids: Collection[str]) -> None:
        if not role_ids:
            return
        types = await store.lock_roles(connection, self._tenant_id, role_ids)
        if types.keys() != set(role_ids):
            raise unknown_relation()
        if set(types.values()) != {"User"}:
            raise wrong_kind("Only users are impersonated: excluded roles must be of the type User.")


async def take_role_out(transaction: Transaction, tenant_id: str, role_id: str) -> bool:
    """Take a role that is being deleted, and is locked, out of the policy; return whether it was in it."""
    changed = await store.remove_role(transaction.connection, tenant_id, role_id)
    if changed is not None:
        _record(transaction, changed)
    return changed is not None


async def record_policy(tenant_id: str, transaction: Transaction, _: str) -> None:
    """Record the policy again, for a republication."""
    if await store.find_policy(transaction.connection, tenant_id) is not None:
        _record(transaction, await store.lock_policy(transaction.connection, tenant_id))


def _record(transaction: Transaction, policy: ImpersonationPolicy) -> None:
    state = ImpersonationPolicyState(
        require_actor=policy.require_actor,
        excluded_role_ids=policy.excluded_roles,
        actor_max_age_s=policy.actor_max_age_s,
        actor_acr=policy.actor_acr,
    )
    transaction.record(AGGREGATE, (_ID,), "updated", state)


def _changed(policy: ImpersonationPolicy, update: rules.ImpersonationPolicyUpdate) -> ImpersonationPolicy:
    changed = policy
    if update.require_actor is not UNSET:
        changed = msgspec.structs.replace(changed, require_actor=bool(update.require_actor))
    if update.require_context is not UNSET:
        changed = msgspec.structs.replace(changed, require_context=each_once(update.require_context or ()))
    if update.excluded_roles is not UNSET:
        changed = msgspec.structs.replace(changed, excluded_roles=tuple(sorted(set(update.excluded_roles or ()))))
    if update.actor_max_age_s is not UNSET:
        changed = msgspec.structs.replace(changed, actor_max_age_s=update.actor_max_age_s)
    if update.actor_acr is not UNSET:
        changed = msgspec.structs.replace(changed, actor_acr=update.actor_acr)
    return changed
