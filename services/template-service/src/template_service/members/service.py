"""Reading and changing the members of organizations and their roles; one path for users and applications."""

from collections.abc import Collection, Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.failures import (
    Conflict,
    body_too_large,
    missing_by_id,
    too_many_related,
    unknown_relation,
    wrong_kind,
)
from identity_common.fields import MAX_RELATED
from identity_common.names import canonical_name
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.database import retry_on_conflict
from identity_common.stores.lookups import Lookups
from stead.event_types import MemberState, MemberType
from template_service.fan_out.requests import request_member_fan_out
from template_service.members import store
from template_service.members.rules import MAX_ASSIGNMENTS, ROLE_TYPE_OF
from template_service.members.store import Member, Membership, RoleOfMember


def require_membership() -> Conflict:
    """Return the failure of a user or application that is not a member of the organization."""
    return Conflict("organization.require_membership", "This is not a member of the organization.")


def _unknown_role_names() -> Conflict:
    return Conflict("organization.role_names_not_found", "There is no organization role with one of these names.")


class Members:
    """The members of every organization; each, with its roles, is an aggregate on the bus.

    All locks are taken in one order: organization, users or applications, members, roles, each by id. Deletions follow
    it too, so that transactions do not deadlock.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        lookups: Lookups,
        changes: Changes,
        fresh_reads: FreshReads,
        *,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._lookups = lookups
        self._changes = changes
        self._fresh_reads = fresh_reads
        self._tenant_id = tenant_id
        self._clock = clock

    async def list_members(
        self,
        member_type: MemberType,
        organization_id: str,
        page: Page,
        *,
        role_id: str | None,
        without_role_id: str | None,
    ) -> tuple[list[Member], int]:
        """Return a page of the members of one kind with their roles, filtered by role, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_members(
                connection,
                self._tenant_id,
                organization_id,
                member_type,
                page,
                role_id=role_id,
                without_role_id=without_role_id,
            )

    async def list_memberships(
        self, member_type: MemberType, member_id: str, page: Page
    ) -> tuple[list[Membership], int]:
        """Return a page of the organizations of a user or application, with its roles there, and their total."""
        async with self._reader.connect() as connection:
            return await store.list_memberships(connection, self._tenant_id, member_type, member_id, page)

    async def list_roles(
        self, member_type: MemberType, organization_id: str, member_id: str, page: Page
    ) -> tuple[list[RoleOfMember], int]:
        """Return a page of a member's roles, and their total.

        Raises:
            Conflict: It is not a member.
        """
        values = (self._tenant_id, organization_id, member_type, member_id)
        if not await self._lookups.fetch(store.IS_MEMBER, *values):
            raise require_membership()
        async with self._reader.connect() as connection:
            return await store.list_roles(connection, self._tenant_id, organization_id, member_id, page)

    async def add(self, member_type: MemberType, organization_id: str, ids: Collection[str]) -> None:
        """Add members; existing ones stay.

        Raises:
            Conflict: A user or application is unknown or of the wrong kind.
        """
        wanted = sorted(set(ids))
        await self._fresh_reads.with_catch_up(lambda: self._add(member_type, organization_id, wanted))

    @retry_on_conflict
    async def _add(self, member_type: MemberType, organization_id: str, wanted: Sequence[str]) -> None:
        async with self._changes.transaction() as transaction:
            await self._lock_organization(transaction, organization_id)
            await self._require_known(transaction, member_type, wanted)
            await self._join(transaction, organization_id, member_type, wanted)

    async def replace(self, member_type: MemberType, organization_id: str, ids: Collection[str]) -> None:
        """Make exactly these the members of their kind; existing ones keep their roles.

        Raises:
            Conflict: A user or application is unknown or of the wrong kind.
        """
        wanted = sorted(set(ids))
        await self._fresh_reads.with_catch_up(lambda: self._replace(member_type, organization_id, wanted))

    @retry_on_conflict
    async def _replace(self, member_type: MemberType, organization_id: str, wanted: Sequence[str]) -> None:
        async with self._changes.transaction() as transaction:
            # The later of two replacements wins: it waits here for the earlier one.
            await self._lock_organization(transaction, organization_id, for_all_members=True)
            await self._require_known(transaction, member_type, wanted)
            members = self._members(transaction, organization_id, member_type)
            removed = await members.remove((await members.all()).difference(wanted))
            await self._join(transaction, organization_id, member_type, wanted)
            await self._record_removed(transaction, organization_id, member_type, removed)

    @retry_on_conflict
    async def remove(self, member_type: MemberType, organization_id: str, member_id: str) -> None:
        """Remove a member and its roles.

        Raises:
            NotFound: It is not a member.
        """
        async with self._changes.transaction() as transaction:
            await self._lock_organization(transaction, organization_id)
            removed = await self._members(transaction, organization_id, member_type).remove([member_id])
            if not removed:
                raise missing_by_id("entity.not_found")
            await self._record_removed(transaction, organization_id, member_type, removed)

    async def assign(
        self,
        member_type: MemberType,
        organization_id: str,
        member_ids: Collection[str],
        role_ids: Collection[str],
        role_names: Collection[str] = (),
    ) -> frozenset[str]:
        """Assign each of these roles to each of these members; return the ids of the roles. Existing roles stay.

        Raises:
            TooLarge: There are too many assignments.
            Conflict: One of them is not a member, or a role is unknown or of the wrong type.
        """
        members = sorted(set(member_ids))
        if len(members) * (len(set(role_ids)) + len(set(role_names))) > MAX_ASSIGNMENTS:
            raise body_too_large(f"More than {MAX_ASSIGNMENTS} assignments: split the request.")
        return await self._fresh_reads.with_catch_up(
            lambda: self._assign(member_type, organization_id, members, role_ids, role_names, replace=False)
        )

    async def replace_roles(
        self,
        member_type: MemberType,
        organization_id: str,
        member_id: str,
        role_ids: Collection[str],
        role_names: Collection[str] = (),
    ) -> None:
        """Assign exactly these roles to a member; it also keeps those that a connector gives it.

        Raises:
            Conflict: It is not a member, or a role is unknown or of the wrong type.
        """
        await self._fresh_reads.with_catch_up(
            lambda: self._assign(member_type, organization_id, [member_id], role_ids, role_names, replace=True)
        )

    @retry_on_conflict
    async def _assign(
        self,
        member_type: MemberType,
        organization_id: str,
        member_ids: Sequence[str],
        role_ids: Collection[str],
        role_names: Collection[str],
        *,
        replace: bool,
    ) -> frozenset[str]:
        async with self._changes.transaction() as transaction:
            members = await self._lock(transaction, organization_id, member_type, member_ids)
            wanted = await self._require_roles(transaction, member_type, role_ids, role_names)
            changed = set(await members.assign(member_ids, wanted))
            if replace and (surplus := (await members.assigned(member_ids[0])).difference(wanted)):
                await members.unassign(member_ids[0], surplus)
                changed.update(member_ids)
            await self._record_changed(transaction, organization_id, member_type, changed)
        return wanted

    @retry_on_conflict
    async def remove_role(self, member_type: MemberType, organization_id: str, member_id: str, role_id: str) -> None:
        """Remove a role from a member; it keeps it if a connector gives it too.

        Raises:
            NotFound: It does not hold the role, or for its groups alone.
            Conflict: It is not a member.
        """
        async with self._changes.transaction() as transaction:
            members = await self._lock(transaction, organization_id, member_type, [member_id])
            [held] = await members.held_roles([member_id])
            if role_id not in (await members.assigned(member_id)).intersection(held.role_ids):
                raise missing_by_id("entity.not_found")
            await members.unassign(member_id, [role_id])
            await self._record_changed(transaction, organization_id, member_type, {member_id})

    async def admit(
        self, transaction: Transaction, organization_id: str, user_id: str, role_ids: Collection[str]
    ) -> None:
        """Make a user a member with these roles, in the transaction of the caller; a member keeps its roles.

        Args:
            transaction: Holds the locks of the organization, the user and the roles.
            organization_id: The organization.
            user_id: The user, who exists.
            role_ids: Roles of the type ``User``.

        Raises:
            Conflict: The user would have too many roles.
        """
        members = self._members(transaction, organization_id, "user")
        await self._join(transaction, organization_id, "user", [user_id])
        await members.lock([user_id])
        changed = await members.assign([user_id], role_ids)
        await self._record_changed(transaction, organization_id, "user", set(changed))

    def _members(self, transaction: Transaction, organization_id: str, member_type: MemberType) -> store.Members:
        return store.Members(transaction.connection, self._tenant_id, organization_id, member_type)

    async def _lock_organization(
        self, transaction: Transaction, organization_id: str, *, for_all_members: bool = False
    ) -> None:
        if not await store.lock_organization(
            transaction.connection, self._tenant_id, organization_id, for_all_members=for_all_members
        ):
            raise missing_by_id()

    async def _lock(
        self, transaction: Transaction, organization_id: str, member_type: MemberType, member_ids: Sequence[str]
    ) -> store.Members:
        """Lock the organization, and the roles of these members against changes."""
        await self._lock_organization(transaction, organization_id)
        members = self._members(transaction, organization_id, member_type)
        if len(await members.lock(member_ids)) != len(member_ids):
            raise require_membership()
        return members

    async def _require_known(self, transaction: Transaction, member_type: MemberType, wanted: Sequence[str]) -> None:
        known = await store.lock_known(transaction.connection, self._tenant_id, member_type, wanted)
        if len(known) != len(wanted):
            raise unknown_relation()
        if not all(known.values()):
            raise wrong_kind("Only users and machine-to-machine applications can be members.")

    async def _require_roles(
        self, transaction: Transaction, member_type: MemberType, ids: Collection[str], names: Collection[str]
    ) -> frozenset[str]:
        found = await store.lock_roles(transaction.connection, self._tenant_id, ids, names)
        if not found.ids.issuperset(ids):
            raise unknown_relation()
        if not all(name in found.names or canonical_name(name) in found.names for name in names):
            raise _unknown_role_names()
        if found.types - {ROLE_TYPE_OF[member_type]}:
            raise wrong_kind("A user has roles of the type User, an application those of the type MachineToMachine.")
        if len(found.ids) > MAX_RELATED:
            raise too_many_related()
        return found.ids

    async def _join(
        self, transaction: Transaction, organization_id: str, member_type: MemberType, wanted: Collection[str]
    ) -> None:
        """Add those that are not members yet. They have no roles, so they need no fan-out."""
        now, members = self._clock(), self._members(transaction, organization_id, member_type)
        if member_type == "user":
            await members.stay(wanted)
        joined = await members.add(wanted, now=now)
        # A statement of its own, with a later snapshot: the previous one may have waited for a removal.
        deleted = await transaction.deleted("member", [(organization_id, member_id) for member_id in joined])
        rejoined = {member_id for _, member_id in deleted}
        if rejoined:
            await members.mark_rejoined(rejoined)
        for member_id in sorted(joined):
            state = MemberState(
                organization_id=organization_id,
                member_id=member_id,
                member_type=member_type,
                joined_at=now,
                rejoined=member_id in rejoined,
            )
            transaction.record("member", (organization_id, member_id), "created", state)

    async def _record_removed(
        self, transaction: Transaction, organization_id: str, member_type: MemberType, removed: Collection[str]
    ) -> None:
        for member_id in sorted(removed):
            state = MemberState(
                organization_id=organization_id, member_id=member_id, member_type=member_type, deleted=True
            )
            transaction.record("member", (organization_id, member_id), "deleted", state)
        await request_member_fan_out(transaction, self._tenant_id, organization_id, removed, "member-removed")

    async def _record_changed(
        self, transaction: Transaction, organization_id: str, member_type: MemberType, changed: Collection[str]
    ) -> None:
        for held in await self._members(transaction, organization_id, member_type).held_roles(changed):
            if len(held.role_ids) > MAX_RELATED:
                raise too_many_related()
            state = MemberState(organization_id=organization_id, member_type=member_type, **held._asdict())
            transaction.record("member", (organization_id, held.member_id), "updated", state)
        await request_member_fan_out(transaction, self._tenant_id, organization_id, changed, "assignment")
