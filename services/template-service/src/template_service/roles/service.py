"""Creating, reading, changing and deleting organization roles, and what they grant."""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.failures import Conflict, duplicate, missing_by_id, too_many_related, unknown_relation, wrong_kind
from identity_common.fields import MAX_RELATED
from identity_common.identifiers import new_id
from identity_common.names import accepted_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from stead.event_types import OrganizationRoleState
from template_service.fan_out.requests import request_role_fan_out
from template_service.role_contents import store as contents
from template_service.role_contents.events import record_roles, touch_roles
from template_service.role_contents.store import Content, GrantedScope, OrganizationPermission
from template_service.role_contents.template_lock import adding_to_template
from template_service.roles import rules, store
from template_service.roles.store import OrganizationRole, OrganizationRoleWithContents


def _name_in_use() -> Conflict:
    return duplicate(message="An organization role with this name already exists.")


_REFUSALS = {"roles_name_unique": _name_in_use}


class OrganizationRoles:
    """Organization roles; each, with what it grants, is an aggregate on the bus.

    Args:
        reader: For reads without a transaction.
        lookups: For reads by id.
        changes: Opens the transactions of changes.
        fresh_reads: Catches up before a scope is refused as unknown.
        tenant_id: The tenant.
        management_api: Indicator of the Management API, whose scopes no organization role can grant.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        fresh_reads: FreshReads,
        *,
        tenant_id: str,
        management_api: str,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._fresh_reads = fresh_reads
        self._tenant_id = tenant_id
        self._management_api = management_api

    async def create(self, creation: rules.OrganizationRoleCreation) -> OrganizationRole:
        """Create a role that grants the given permissions and scopes, in one transaction.

        Raises:
            Conflict: The name is not valid or in use; a permission or scope is unknown, or there are too many; or a
                scope is of the Management API.
        """
        return await self._fresh_reads.with_catch_up(lambda: self._create(creation))

    @retry_on_conflict
    async def _create(self, creation: rules.OrganizationRoleCreation) -> OrganizationRole:
        role = OrganizationRole(
            tenant_id=self._tenant_id,
            id=new_id(),
            name=accepted_name(creation.name),
            description=creation.description,
            type=creation.type,
        )
        async with self._changes.transaction() as transaction:
            await adding_to_template(transaction.connection, self._tenant_id)
            await self._require_unlike(transaction, role)
            with refusals(_REFUSALS):
                await store.insert_role(transaction.connection, role)
            await self._grant(transaction, "permission", role.id, creation.organization_scope_ids)
            await self._grant(transaction, "scope", role.id, creation.resource_scope_ids)
            await self._record(transaction, role.id, "created")
        return role

    async def get(self, role_id: str) -> OrganizationRole:
        """Return a role."""
        role = await store.find_role(self._lookups, self._tenant_id, role_id)
        if role is None:
            raise missing_by_id()
        return role

    async def list_roles(
        self, page: Page, *, ids: Sequence[str], role_type: str | None
    ) -> tuple[list[OrganizationRoleWithContents], int]:
        """Return a page of the roles with what they grant, and their total; see ``store.list_roles``."""
        async with self._reader.connect() as connection:
            return await store.list_roles(connection, self._tenant_id, page, ids=ids, role_type=role_type)

    @retry_on_conflict
    async def update(self, role_id: str, update: rules.OrganizationRoleUpdate) -> OrganizationRole:
        """Change the given fields of a role; the permissions of its holders do not change.

        Raises:
            Conflict: The name is not valid or in use, or the type of a role that a member holds would change.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            exclusive = update.type is not UNSET
            role = await store.lock_role(connection, self._tenant_id, role_id, exclusive=exclusive)
            if role is None:
                raise missing_by_id("entity.not_exists")
            given = {name: getattr(update, name) for name in update.__struct_fields__}
            given = {name: value for name, value in given.items() if value is not UNSET}
            if update.name is not UNSET:
                given["name"] = accepted_name(update.name, stored=role.name)
            changed = msgspec.structs.replace(role, **given)
            if changed.type != role.type and await store.is_assigned(connection, self._tenant_id, role_id):
                raise wrong_kind("The type of a role cannot be changed while a member holds it.")
            if changed.name != role.name:
                await self._require_unlike(transaction, changed)
            if changed != role:
                changed = msgspec.structs.replace(changed, version=role.version + 1)
                with refusals(_REFUSALS):
                    await store.update_role(connection, changed)
                await self._record(transaction, role_id, "updated")
        return changed

    @retry_on_conflict
    async def delete(self, role_id: str) -> None:
        """Delete a role. It grants nothing from then on; the fan-out deletes its assignments."""
        async with self._changes.transaction() as transaction:
            if not await store.delete_role(transaction.connection, self._tenant_id, role_id):
                raise missing_by_id("entity.not_found")
            transaction.record("role", (role_id,), "deleted", OrganizationRoleState(id=role_id, deleted=True))
            await request_role_fan_out(transaction, self._tenant_id, role_id, "role-deleted")

    async def list_permissions(self, role_id: str, page: Page) -> tuple[list[OrganizationPermission], int]:
        """Return a page of the organization permissions that a role grants, and their total."""
        async with self._reader.connect() as connection:
            return await contents.list_permissions_of(connection, self._tenant_id, role_id, page)

    async def list_scopes(self, role_id: str, page: Page) -> tuple[list[GrantedScope], int]:
        """Return a page of the scopes of API resources that a role grants, and their total."""
        async with self._reader.connect() as connection:
            return await contents.list_scopes_of(connection, self._tenant_id, role_id, page)

    async def add(self, content: Content, role_id: str, ids: Collection[str]) -> None:
        """Add permissions or scopes to what a role grants.

        Raises:
            Conflict: One of them is unknown or a scope of the Management API, or there are too many.
        """
        await self._fresh_reads.with_catch_up(lambda: self._add(content, role_id, ids))

    @retry_on_conflict
    async def _add(self, content: Content, role_id: str, ids: Collection[str]) -> None:
        async with self._changes.transaction() as transaction:
            await self._lock(transaction, role_id)
            if await self._grant(transaction, content, role_id, ids):
                await self._contents_changed(transaction, role_id)

    async def replace(self, content: Content, role_id: str, ids: Collection[str]) -> None:
        """Replace what a role grants of one kind with these permissions or scopes.

        Raises:
            Conflict: One of them is unknown or a scope of the Management API, or there are too many.
        """
        await self._fresh_reads.with_catch_up(lambda: self._replace(content, role_id, ids))

    @retry_on_conflict
    async def _replace(self, content: Content, role_id: str, ids: Collection[str]) -> None:
        async with self._changes.transaction() as transaction:
            await self._lock(transaction, role_id)
            revoked = await contents.remove_others(transaction.connection, self._tenant_id, content, role_id, ids)
            if await self._grant(transaction, content, role_id, ids) or revoked:
                await self._contents_changed(transaction, role_id)

    @retry_on_conflict
    async def remove(self, content: Content, role_id: str, content_id: str) -> None:
        """Remove a permission or scope from what a role grants.

        Raises:
            NotFound: There is no such role, or it does not grant this.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            role = await store.lock_role(connection, self._tenant_id, role_id)
            if role is None or not await contents.remove(connection, self._tenant_id, content, role_id, [content_id]):
                raise missing_by_id("entity.not_found")
            await self._contents_changed(transaction, role_id)

    async def _require_unlike(self, transaction: Transaction, role: OrganizationRole) -> None:
        """Refuse a name that a role from an earlier release has in another form."""
        if await store.has_alike_name(transaction.connection, role):
            raise _name_in_use()

    async def _lock(self, transaction: Transaction, role_id: str) -> None:
        if await store.lock_role(transaction.connection, self._tenant_id, role_id) is None:
            raise missing_by_id()

    async def _grant(self, transaction: Transaction, content: Content, role_id: str, ids: Collection[str]) -> bool:
        """Add these to what a locked role grants; return whether any is new."""
        if not ids:
            return False
        if content == "permission":
            await self._require_permissions(transaction, ids)
        else:
            await self._require_scopes(transaction, ids)
        return bool(await contents.add(transaction.connection, self._tenant_id, content, role_id, ids))

    async def _require_permissions(self, transaction: Transaction, ids: Collection[str]) -> None:
        if await contents.lock_permissions(transaction.connection, self._tenant_id, ids) != set(ids):
            raise unknown_relation()

    async def _require_scopes(self, transaction: Transaction, ids: Collection[str]) -> None:
        indicators = await contents.lock_scopes(transaction.connection, self._tenant_id, ids)
        if indicators.keys() != set(ids):
            raise unknown_relation()
        if self._management_api in indicators.values():
            raise wrong_kind("An organization role cannot grant scopes of the Management API.")

    async def _contents_changed(self, transaction: Transaction, role_id: str) -> None:
        await touch_roles(transaction, self._tenant_id, [role_id])
        await self._record(transaction, role_id, "updated")
        await request_role_fan_out(transaction, self._tenant_id, role_id, "role-changed")

    async def _record(self, transaction: Transaction, role_id: str, verb: str) -> None:
        (state,) = await record_roles(transaction, self._tenant_id, [role_id], verb)
        if len(state.permission_ids) + len(state.scope_ids) > MAX_RELATED:
            raise too_many_related()
