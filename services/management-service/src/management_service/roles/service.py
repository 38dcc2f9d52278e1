"""Creates, reads, changes and deletes API roles and their scopes."""

from collections.abc import Collection

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.failures import Conflict, duplicate, missing_by_id, too_many_related, unknown_relation, wrong_kind
from identity_common.fields import MAX_RELATED
from identity_common.identifiers import new_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from identity_common.wire.events import RoleState
from management_service.administrators import Administrators
from management_service.attainable_scopes import AttainableScopes
from management_service.impersonation_policy.service import take_role_out
from management_service.resources.narrowing import named_scopes, record_lost_scopes
from management_service.resources.store import Scope
from management_service.roles import rules, store
from management_service.roles.store import Role, RoleFilter


def _name_in_use() -> Conflict:
    return duplicate(message="A role with this name already exists.")


_REFUSALS = {"roles_name_unique": _name_in_use}


def role_state(role: Role, scope_ids: tuple[str, ...]) -> RoleState:
    """Return the state of a role for its event."""
    return RoleState(id=role.id, name=role.name, description=role.description, type=role.type, scope_ids=scope_ids)


def _default_of_wrong_type() -> Conflict:
    return wrong_kind("Only a role of the type User can be a default role.")


class Roles:
    """API roles; each, with the scopes that it grants, is an aggregate on the bus."""

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        administrators: Administrators,
        attainable: AttainableScopes,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._administrators = administrators
        self._attainable = attainable
        self._tenant_id = tenant_id
        self._clock = clock

    @retry_on_conflict
    async def create(self, creation: rules.RoleCreation) -> Role:
        """Create a role that grants the given scopes.

        Raises:
            Conflict: The name is not valid or in use, a scope is unknown, or a default role has the wrong type.
        """
        if creation.is_default and not rules.may_be_default(creation.type):
            raise _default_of_wrong_type()
        role = Role(
            tenant_id=self._tenant_id,
            id=new_id(),
            name=accepted_name(creation.name),
            description=creation.description,
            type=creation.type,
            is_default=creation.is_default,
            created_at=self._clock(),
        )
        async with self._changes.transaction() as transaction:
            await self._require_unlike(transaction, role)
            with refusals(_REFUSALS):
                await store.insert_role(transaction.connection, role)
            await self._grant(transaction, role, creation.scope_ids)
            await self._record(transaction, role, "created")
        return role

    async def get(self, role_id: str) -> Role:
        """Return a role."""
        role = await store.find_role(self._lookups, self._tenant_id, role_id)
        if role is None:
            raise missing_by_id()
        return role

    async def find_by_name(self, name: str) -> Role | None:
        """Return the role with this name; None if there is none."""
        async with self._reader.connect() as connection:
            return await store.find_role_by_name(connection, self._tenant_id, name)

    async def list_roles(self, page: Page, only: RoleFilter) -> tuple[list[Role], int]:
        """Return a page of the roles that a filter selects, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_roles(connection, self._tenant_id, page, only)

    @retry_on_conflict
    async def update(self, role_id: str, update: rules.RoleUpdate) -> Role:
        """Change the given members of a role.

        Raises:
            Conflict: The name is not valid or in use, or a default role has the wrong type.
        """
        async with self._changes.transaction() as transaction:
            role = await store.lock_role(transaction.connection, self._tenant_id, role_id)
            if role is None:
                raise missing_by_id("entity.not_exists")
            changed = role
            if update.name is not UNSET:
                changed = msgspec.structs.replace(changed, name=accepted_name(update.name, stored=role.name))
            if update.description is not UNSET:
                changed = msgspec.structs.replace(changed, description=update.description)
            if update.is_default is not UNSET:
                changed = msgspec.structs.replace(changed, is_default=bool(update.is_default))
            if changed.is_default and not rules.may_be_default(changed.type):
                raise _default_of_wrong_type()
            if changed.name != role.name:
                await self._require_unlike(transaction, changed)
            if changed.is_default and not role.is_default:
                await self._attainable.require_roles(transaction.connection, [role_id])
            if changed != role:
                with refusals(_REFUSALS):
                    await store.update_role(transaction.connection, changed)
                await self._record(transaction, changed, "updated")
        return changed

    @retry_on_conflict
    async def delete(self, role_id: str) -> None:
        """Delete a role; its holders lose it.

        Raises:
            Conflict: This would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            connection = transaction.connection
            if await store.lock_role(connection, self._tenant_id, role_id) is None:
                raise missing_by_id("entity.not_found")
            granted = await store.granted_scope_ids(connection, self._tenant_id, role_id)
            lost = await named_scopes(connection, self._tenant_id, granted)
            await store.delete_role(connection, self._tenant_id, role_id)
            transaction.record("role", (role_id,), "deleted", RoleState(id=role_id, deleted=True))
            if await take_role_out(transaction, self._tenant_id, role_id):
                self._attainable.require_change_of_policy()
            record_lost_scopes(transaction, lost)

    async def list_scopes(self, role_id: str, page: Page) -> tuple[list[Scope], int]:
        """Return a page of the scopes that a role grants, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_granted_scopes(connection, self._tenant_id, role_id, page)

    @retry_on_conflict
    async def add_scopes(self, role_id: str, scope_ids: Collection[str]) -> list[Scope]:
        """Add scopes to those that a role grants; return all that it grants now.

        Raises:
            Conflict: A scope is unknown.
        """
        async with self._changes.transaction() as transaction:
            role = await self._lock(transaction, role_id)
            if await self._grant(transaction, role, scope_ids):
                await self._record(transaction, role, "updated")
            all_of_them = Page(size=None)
            scopes, _ = await store.list_granted_scopes(transaction.connection, self._tenant_id, role_id, all_of_them)
        return scopes

    @retry_on_conflict
    async def replace_scopes(self, role_id: str, scope_ids: Collection[str]) -> None:
        """Replace the scopes that a role grants.

        Raises:
            Conflict: A scope is unknown, or this would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            role = await self._lock(transaction, role_id)
            granted = await store.granted_scope_ids(transaction.connection, self._tenant_id, role_id)
            surplus = set(granted).difference(scope_ids)
            lost = await named_scopes(transaction.connection, self._tenant_id, surplus)
            revoked = await store.revoke_scopes(transaction.connection, self._tenant_id, role_id, surplus)
            if await self._grant(transaction, role, scope_ids) or revoked:
                await self._record(transaction, role, "updated")
                record_lost_scopes(transaction, lost)

    @retry_on_conflict
    async def remove_scope(self, role_id: str, scope_id: str) -> None:
        """Remove a scope from a role.

        Raises:
            NotFound: There is no such role, or it does not grant the scope.
            Conflict: This would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            role = await store.lock_role(transaction.connection, self._tenant_id, role_id)
            if role is None or not await store.revoke_scopes(
                transaction.connection, self._tenant_id, role_id, [scope_id]
            ):
                raise missing_by_id("entity.not_found")
            await self._record(transaction, role, "updated")
            record_lost_scopes(transaction, await named_scopes(transaction.connection, self._tenant_id, [scope_id]))

    async def _require_unlike(self, transaction: Transaction, role: Role) -> None:
        """Refuse a name that a role from an earlier release has in another form."""
        if await store.has_alike_name(transaction.connection, role):
            raise _name_in_use()

    async def _lock(self, transaction: Transaction, role_id: str) -> Role:
        role = await store.lock_role(transaction.connection, self._tenant_id, role_id)
        if role is None:
            raise missing_by_id()
        return role

    async def _grant(self, transaction: Transaction, role: Role, scope_ids: Collection[str]) -> bool:
        """Add scopes to a locked role; return whether any is new."""
        connection = transaction.connection
        if await store.lock_scopes(connection, self._tenant_id, scope_ids) != set(scope_ids):
            raise unknown_relation()
        granted = await store.granted_scope_ids(connection, self._tenant_id, role.id)
        new = sorted(set(scope_ids).difference(granted))
        await self._attainable.require_scopes(connection, new)
        await store.grant_scopes(connection, self._tenant_id, role.id, new)
        return bool(new)

    async def _record(self, transaction: Transaction, role: Role, verb: str) -> None:
        scope_ids = await store.granted_scope_ids(transaction.connection, self._tenant_id, role.id)
        if len(scope_ids) > MAX_RELATED:
            raise too_many_related()
        transaction.record("role", (role.id,), verb, role_state(role, scope_ids))
