"""Reads and changes the policy of signing in."""

from typing import Final

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.email_domains import canonical_domains
from identity_common.failures import Conflict
from identity_common.outbox.changes import Changes, Transaction
from identity_common.stores.database import retry_on_conflict
from identity_common.wire.events import SignInPolicyState
from management_service.sign_in_policy import rules, store
from management_service.sign_in_policy.rules import SignInPolicy

AGGREGATE: Final = "sign-in-policy"
"""Kind of the aggregate on the bus; a tenant has one."""

_ID: Final = "tenant"


class SignInPolicies:
    """The policy of one tenant."""

    def __init__(self, reader: AsyncEngine, changes: Changes, *, tenant_id: str) -> None:
        self._reader = reader
        self._changes = changes
        self._tenant_id = tenant_id

    async def get(self) -> SignInPolicy:
        """Return the policy."""
        async with self._reader.connect() as connection:
            found = await store.find_policy(connection, self._tenant_id)
        return found or SignInPolicy(tenant_id=self._tenant_id)

    @retry_on_conflict
    async def update(self, update: rules.SignInPolicyUpdate) -> SignInPolicy:
        """Change the given members.

        Raises:
            Invalid: A domain is not one.
            Conflict: Registration would be for addresses of some domains, but none is named.
        """
        members = _members(update)
        async with self._changes.transaction() as transaction:
            policy = await store.lock_policy(transaction.connection, self._tenant_id)
            changed = msgspec.structs.replace(policy, **members)
            if changed.registration == "domains" and not changed.registration_domains:
                raise Conflict("sign_in.domains_required", "Registration by domains needs at least one domain.")
            if changed != policy:
                await store.update_policy(transaction.connection, changed)
                _record(transaction, changed)
        return changed


async def record_policy(tenant_id: str, transaction: Transaction, _: str) -> None:
    """Record the policy again, for a republication."""
    if await store.find_policy(transaction.connection, tenant_id) is not None:
        _record(transaction, await store.lock_policy(transaction.connection, tenant_id))


def _record(transaction: Transaction, policy: SignInPolicy) -> None:
    state = SignInPolicyState(registration=policy.registration, second_factor=policy.second_factor)
    transaction.record(AGGREGATE, (_ID,), "updated", state)


def _members(update: rules.SignInPolicyUpdate) -> dict[str, object]:
    """Return the given members, as they are stored."""
    members: dict[str, object] = {}
    if update.registration is not UNSET:
        members["registration"] = update.registration or "off"
    if update.registration_domains is not UNSET:
        members["registration_domains"] = canonical_domains(
            update.registration_domains or (), path="registrationDomains"
        )
    if update.second_factor is not UNSET:
        members["second_factor"] = update.second_factor or "optional"
    return members
