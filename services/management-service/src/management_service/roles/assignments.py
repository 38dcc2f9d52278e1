"""Assigns roles to users and machine-to-machine applications, and removes them, from either side."""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.failures import AnyFailure, missing_by_id, too_many_related, unknown_relation, wrong_kind
from identity_common.fields import MAX_RELATED
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.stores.database import retry_on_conflict
from identity_common.wire.events import AssignmentState, HolderKind, RoleType
from management_service.administrators import Administrators
from management_service.applications.store import Application
from management_service.attainable_scopes import AttainableScopes
from management_service.resources.narrowing import record_lost_roles
from management_service.roles import holders, store
from management_service.roles.rules import ROLE_TYPE_OF
from management_service.roles.store import Role
from management_service.users.store import User

RoleIdsByHolder = dict[str, tuple[str, ...]]


def record_assignment(transaction: Transaction, kind: HolderKind, holder_id: str, role_ids: tuple[str, ...]) -> None:
    """Record which roles a user or application holds."""
    state = AssignmentState(id=holder_id, holder_kind=kind, role_ids=role_ids)
    transaction.record("assignment", (kind, holder_id), "updated", state)


class Assignments:
    """The roles of users and machine-to-machine applications; those of one holder are an aggregate on the bus."""

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        administrators: Administrators,
        attainable: AttainableScopes,
        *,
        tenant_id: str,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._administrators = administrators
        self._attainable = attainable
        self._tenant_id = tenant_id

    async def record_default_roles(
        self, transaction: Transaction, user_ids: Sequence[str], role_ids: tuple[str, ...]
    ) -> None:
        """Check and record the default roles of new users, in the transaction that creates them with these."""
        if role_ids:
            await self._attainable.require_roles(transaction.connection, role_ids)
            for user_id in user_ids:
                record_assignment(transaction, "user", user_id, role_ids)

    async def list_roles(self, kind: HolderKind, holder_id: str, page: Page) -> tuple[list[Role], int]:
        """Return a page of the roles of a user or application, and their total."""
        async with self._reader.connect() as connection:
            return await holders.list_roles_of(connection, self._tenant_id, kind, holder_id, page)

    async def list_users(self, role_id: str, page: Page) -> tuple[list[User], int]:
        """Return a page of the users that hold a role, and their total."""
        async with self._reader.connect() as connection:
            return await holders.list_users_of(connection, self._tenant_id, role_id, page)

    async def list_applications(self, role_id: str, page: Page) -> tuple[list[Application], int]:
        """Return a page of the applications that hold a role, and their total."""
        async with self._reader.connect() as connection:
            return await holders.list_applications_of(connection, self._tenant_id, role_id, page)

    @retry_on_conflict
    async def add_roles(self, kind: HolderKind, holder_id: str, role_ids: Sequence[str]) -> tuple[str, ...]:
        """Add roles to those of a user or application; return the ids of those that it did not have.

        Raises:
            Conflict: A role is unknown, or has the wrong type.
        """
        async with self._changes.transaction() as transaction:
            before = await self._lock(transaction, kind, [holder_id], missing=missing_by_id())
            await self._require_roles(transaction, kind, role_ids)
            await holders.add(transaction.connection, self._tenant_id, kind, [holder_id], list(set(role_ids)))
            await self._record_changes(transaction, kind, before)
        return tuple(role_id for role_id in dict.fromkeys(role_ids) if role_id not in before[holder_id])

    @retry_on_conflict
    async def replace_roles(self, kind: HolderKind, holder_id: str, role_ids: Collection[str]) -> None:
        """Replace the roles of a user or application.

        Raises:
            Conflict: A role is unknown, or has the wrong type; or this would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            before = await self._lock(transaction, kind, [holder_id], missing=missing_by_id())
            await self._require_roles(transaction, kind, role_ids)
            surplus = set(before[holder_id]).difference(role_ids)
            await holders.remove(transaction.connection, self._tenant_id, kind, [holder_id], surplus)
            await holders.add(transaction.connection, self._tenant_id, kind, [holder_id], list(set(role_ids)))
            await self._record_changes(transaction, kind, before)

    @retry_on_conflict
    async def remove_role(self, kind: HolderKind, holder_id: str, role_id: str) -> None:
        """Remove a role from a user or application.

        Raises:
            NotFound: There is no such holder, or it does not have the role.
            Conflict: This would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            held = await holders.lock_holders(transaction.connection, self._tenant_id, kind, [holder_id])
            before = await holders.role_ids_of(transaction.connection, self._tenant_id, kind, held)
            if not held or role_id not in before[holder_id]:
                raise missing_by_id("entity.not_found")
            await holders.remove(transaction.connection, self._tenant_id, kind, [holder_id], [role_id])
            await self._record_changes(transaction, kind, before)

    @retry_on_conflict
    async def add_holders(self, kind: HolderKind, role_id: str, holder_ids: Collection[str]) -> None:
        """Give a role to these users or applications.

        Raises:
            Conflict: A user or application is unknown, or of the wrong kind.
        """
        async with self._changes.transaction() as transaction:
            before = await self._lock(transaction, kind, sorted(set(holder_ids)), missing=unknown_relation())
            types = await holders.lock_roles(transaction.connection, self._tenant_id, [role_id])
            if not types:
                raise missing_by_id()
            self._require_type(kind, types)
            await holders.add(transaction.connection, self._tenant_id, kind, list(before), [role_id])
            await self._record_changes(transaction, kind, before)

    @retry_on_conflict
    async def replace_holders(self, kind: HolderKind, role_id: str, holder_ids: Collection[str]) -> None:
        """Give a role to these users or applications and take it from all others.

        Raises:
            Conflict: A user or application is unknown, or of the wrong kind; or this would end the last administrator.
        """
        async with self._changes.transaction() as transaction, self._administrators.kept(transaction.connection):
            connection = transaction.connection
            # Serializes replacements: the later one wins. Adding a role locks it after its holders, with a lock that is
            # compatible with this one; so locking the holders next cannot deadlock.
            role = await store.lock_role(connection, self._tenant_id, role_id)
            if role is None:
                raise missing_by_id()
            wanted = sorted(set(holder_ids))
            surplus = (await holders.holder_ids_of(connection, self._tenant_id, kind, role_id)).difference(wanted)
            found = await holders.lock_holders(connection, self._tenant_id, kind, surplus.union(wanted))
            if not set(found).issuperset(wanted):
                raise unknown_relation()
            await self._require_machines(transaction, kind, wanted)
            self._require_type(kind, {role_id: role.type})
            before = await holders.role_ids_of(connection, self._tenant_id, kind, found)
            await holders.remove(connection, self._tenant_id, kind, surplus, [role_id])
            await holders.add(connection, self._tenant_id, kind, wanted, [role_id])
            await self._record_changes(transaction, kind, before)

    async def _lock(
        self, transaction: Transaction, kind: HolderKind, holder_ids: Sequence[str], *, missing: AnyFailure
    ) -> RoleIdsByHolder:
        """Lock holders and return their roles."""
        connection = transaction.connection
        found = await holders.lock_holders(connection, self._tenant_id, kind, holder_ids)
        if len(found) != len(holder_ids):
            raise missing
        await self._require_machines(transaction, kind, found)
        return await holders.role_ids_of(connection, self._tenant_id, kind, found)

    async def _require_machines(self, transaction: Transaction, kind: HolderKind, holder_ids: Sequence[str]) -> None:
        if kind == "application":
            fitting = await holders.count_machine_to_machine(transaction.connection, self._tenant_id, holder_ids)
            if fitting != len(holder_ids):
                raise wrong_kind("Only machine-to-machine applications have roles.")

    async def _require_roles(self, transaction: Transaction, kind: HolderKind, role_ids: Collection[str]) -> None:
        types = await holders.lock_roles(transaction.connection, self._tenant_id, role_ids)
        if not types.keys() >= set(role_ids):
            raise unknown_relation()
        self._require_type(kind, types)

    @staticmethod
    def _require_type(kind: HolderKind, types: Mapping[str, RoleType]) -> None:
        if any(role_type != ROLE_TYPE_OF[kind] for role_type in types.values()):
            raise wrong_kind(
                "Users can have roles of the type User only, applications those of the type MachineToMachine."
            )

    async def _record_changes(self, transaction: Transaction, kind: HolderKind, before: RoleIdsByHolder) -> None:
        after = await holders.role_ids_of(transaction.connection, self._tenant_id, kind, before.keys())
        await self._attainable.require_roles(transaction.connection, _gained(before, after))
        await self._attainable.require_withdrawal(transaction.connection, _gained(after, before))
        for holder_id, role_ids in after.items():
            if role_ids != before[holder_id]:
                if len(role_ids) > MAX_RELATED:
                    raise too_many_related()
                record_assignment(transaction, kind, holder_id, role_ids)
                if not set(role_ids).issuperset(before[holder_id]):
                    record_lost_roles(transaction, kind, holder_id)


def _gained(before: RoleIdsByHolder, after: RoleIdsByHolder) -> set[str]:
    """Return the roles that a holder has after a change and did not have before it."""
    return {role_id for holder_id, role_ids in after.items() for role_id in {*role_ids}.difference(before[holder_id])}
