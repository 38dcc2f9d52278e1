"""Creating, reading, changing and deleting organization permissions."""

import msgspec
from msgspec import UNSET
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.failures import duplicate, invalid_scope_name, missing_by_id
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes
from identity_common.paging import Page
from identity_common.scope_names import is_scope_name
from identity_common.stores.database import refusals, retry_on_conflict
from identity_common.stores.lookups import Lookups
from stead.event_types import OrganizationPermissionState
from template_service.fan_out.requests import request_role_fan_outs
from template_service.permissions import rules, store
from template_service.role_contents import store as contents
from template_service.role_contents.events import record_roles, touch_roles
from template_service.role_contents.store import OrganizationPermission
from template_service.role_contents.template_lock import adding_to_template

_TAKEN = "An organization permission with this name already exists."
_REFUSALS = {"permissions_name_unique": lambda: duplicate(message=_TAKEN)}


class OrganizationPermissions:
    """Organization permissions; each is an aggregate on the bus.

    Args:
        reader: For reads without a transaction.
        lookups: For reads by id.
        changes: Opens the transactions of changes.
        tenant_id: The tenant.
        urn_namespace: Reserved: no name may begin with it.
    """

    def __init__(
        self, reader: AsyncEngine, lookups: Lookups, changes: Changes, *, tenant_id: str, urn_namespace: str
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._tenant_id = tenant_id
        self._urn_namespace = urn_namespace

    @retry_on_conflict
    async def create(self, creation: rules.OrganizationPermissionCreation) -> OrganizationPermission:
        """Create a permission; no role grants it yet.

        Raises:
            Conflict: The name is invalid or in use.
        """
        self._require_name(creation.name)
        permission = OrganizationPermission(
            tenant_id=self._tenant_id, id=new_id(), name=creation.name, description=creation.description
        )
        async with self._changes.transaction() as transaction:
            await adding_to_template(transaction.connection, self._tenant_id)
            with refusals(_REFUSALS):
                await store.insert_permission(transaction.connection, permission)
            state = OrganizationPermissionState(
                id=permission.id, name=permission.name, description=permission.description
            )
            transaction.record("permission", (permission.id,), "created", state)
        return permission

    async def get(self, permission_id: str) -> OrganizationPermission:
        """Return a permission."""
        permission = await store.find_permission(self._lookups, self._tenant_id, permission_id)
        if permission is None:
            raise missing_by_id()
        return permission

    async def list_permissions(self, page: Page) -> tuple[list[OrganizationPermission], int]:
        """Return a page of the permissions, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_permissions(connection, self._tenant_id, page)

    @retry_on_conflict
    async def update(self, permission_id: str, update: rules.OrganizationPermissionUpdate) -> OrganizationPermission:
        """Change the given fields of a permission. A new name changes the permissions of every holder.

        A new description also increments the version and records an event: members read it with their permissions.

        Raises:
            Conflict: The name is invalid or in use.
        """
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            permission = await store.lock_permission(connection, self._tenant_id, permission_id)
            if permission is None:
                raise missing_by_id("entity.not_exists")
            changed = permission
            if update.name is not UNSET:
                self._require_name(update.name)
                changed = msgspec.structs.replace(changed, name=update.name)
            if update.description is not UNSET:
                changed = msgspec.structs.replace(changed, description=update.description)
            if changed != permission:
                changed = msgspec.structs.replace(changed, version=permission.version + 1)
                with refusals(_REFUSALS):
                    await store.update_permission(connection, changed)
                state = OrganizationPermissionState(
                    id=permission_id, name=changed.name, description=changed.description
                )
                transaction.record("permission", (permission_id,), "updated", state)
            if changed.name != permission.name:
                role_ids = await contents.roles_granting(connection, self._tenant_id, "permission", [permission_id])
                await request_role_fan_outs(transaction, self._tenant_id, role_ids, "permission-changed")
        return changed

    @retry_on_conflict
    async def delete(self, permission_id: str) -> None:
        """Delete a permission and its grants."""
        async with self._changes.transaction() as transaction:
            connection = transaction.connection
            found, role_ids = await contents.lock_with_roles(connection, self._tenant_id, "permission", [permission_id])
            if not found:
                raise missing_by_id("entity.not_found")
            await store.delete_permission(connection, self._tenant_id, permission_id)
            state = OrganizationPermissionState(id=permission_id, deleted=True)
            transaction.record("permission", (permission_id,), "deleted", state)
            await touch_roles(transaction, self._tenant_id, role_ids)
            await record_roles(transaction, self._tenant_id, role_ids)
            await request_role_fan_outs(transaction, self._tenant_id, role_ids, "permission-deleted")

    def _require_name(self, name: str) -> None:
        if not is_scope_name(name, urn_namespace=self._urn_namespace):
            raise invalid_scope_name()
