"""Reading and changing who joins an organization just in time, and with which roles.

A change holds from the next sign-in of each person: it changes no member itself.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.failures import duplicate, missing_by_id, too_many_related, unknown_relation, wrong_kind
from identity_common.fields import MAX_RELATED, each_once
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes, Transaction
from identity_common.paging import Page
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.database import retry_on_conflict
from template_service.just_in_time import rules, store
from template_service.just_in_time.rules import JitGroup
from template_service.just_in_time.store import Configuration, Connector, Group, NewGroup, Relation
from template_service.members.store import lock_organization, lock_roles
from template_service.roles.store import OrganizationRole

_Change = Callable[[Transaction, Configuration], Awaitable[None]]


class JustInTime:
    """The configuration of every organization.

    Locks are taken in one order: organization, connectors, roles, each by id.

    Args:
        reader: For reads without a transaction.
        changes: Opens the transactions of changes.
        fresh_reads: Catches up before a connector is refused as unknown.
        tenant_id: The tenant.
    """

    def __init__(self, reader: AsyncEngine, changes: Changes, fresh_reads: FreshReads, *, tenant_id: str) -> None:
        self._reader = reader
        self._changes = changes
        self._fresh_reads = fresh_reads
        self._tenant_id = tenant_id

    async def list_domains(self, organization_id: str, page: Page) -> tuple[list[str], int]:
        """Return a page of the domains, and their total."""
        async with self._reading(organization_id) as configuration:
            return await configuration.list_domains(page)

    async def list_roles(self, organization_id: str, page: Page) -> tuple[list[OrganizationRole], int]:
        """Return a page of the roles that joining gives, and their total."""
        async with self._reading(organization_id) as configuration:
            return await configuration.list_roles(page)

    async def list_connectors(self, organization_id: str, page: Page) -> tuple[list[Connector], int]:
        """Return a page of the connectors, and their total."""
        async with self._reading(organization_id) as configuration:
            return await configuration.list_connectors(page)

    async def list_groups(self, organization_id: str, page: Page) -> tuple[list[Group], int]:
        """Return a page of the groups that give roles, and their total."""
        async with self._reading(organization_id) as configuration:
            return await configuration.list_groups(page)

    async def add_domain(self, organization_id: str, domain: str) -> str:
        """Add a domain; return it in its canonical form.

        Raises:
            Invalid: It is not a domain.
            Conflict: The organization has it, or there are too many.
        """
        canonical = rules.canonical_domain(domain, "emailDomain")

        async def add(_: Transaction, configuration: Configuration) -> None:
            if not await configuration.add("email-domain", [canonical]):
                raise duplicate(message="The organization has this domain.")
            await self._require_not_too_many(configuration, "email-domain")

        await self._change(organization_id, add)
        return canonical

    async def replace_domains(self, organization_id: str, domains: Sequence[str]) -> None:
        """Make these the domains.

        Raises:
            Invalid: One of them is not a domain.
            Conflict: There are too many.
        """
        await self._replace(organization_id, "email-domain", rules.canonical_domains(domains))

    async def add(self, organization_id: str, relation: Relation, ids: Collection[str]) -> None:
        """Add roles or connectors.

        Raises:
            Conflict: One of them is unknown, or a role is not for users, or there are too many.
        """

        async def add(transaction: Transaction, configuration: Configuration) -> None:
            await self._require_known(transaction, relation, ids)
            await configuration.add(relation, ids)
            await self._require_not_too_many(configuration, relation)

        await self._change(organization_id, add)

    async def replace(self, organization_id: str, relation: Relation, ids: Collection[str]) -> None:
        """Make these the roles or connectors.

        Raises:
            Conflict: One of them is unknown, or a role is not for users, or there are too many.
        """
        await self._replace(organization_id, relation, ids)

    async def remove(self, organization_id: str, relation: Relation, one: str) -> None:
        """Remove a domain, role or connector.

        Raises:
            Invalid: It is no domain.
            NotFound: The organization does not have it.
        """
        of = rules.canonical_domain(one, "emailDomain") if relation == "email-domain" else one

        async def remove(_: Transaction, configuration: Configuration) -> None:
            if not await configuration.remove(relation, of):
                raise missing_by_id("entity.not_found")

        await self._change(organization_id, remove)

    async def add_group(self, organization_id: str, group: JitGroup) -> str:
        """Let a group give roles; return the id of that.

        Raises:
            Conflict: The organization has the group of this connector; or the connector or a role is unknown, or a role
                is not for users; or there are too many.
        """
        (new,) = _new([group])

        async def add(transaction: Transaction, configuration: Configuration) -> None:
            await self._require_known_of([group], transaction)
            if await configuration.has_group(group.sso_connector_id, group.group):
                raise duplicate(message="The organization has this group of the connector.")
            await configuration.put_groups([new])
            if await configuration.count_groups() > MAX_RELATED:
                raise too_many_related()

        await self._change(organization_id, add)
        return new.id

    async def replace_groups(self, organization_id: str, groups: Sequence[JitGroup]) -> None:
        """Let exactly these groups give roles.

        Raises:
            Invalid: One is named twice.
            Conflict: A connector or a role is unknown, or a role is not for users; or there are too many.
        """
        rules.require_distinct(groups)
        new = _new(groups)

        async def replace(transaction: Transaction, configuration: Configuration) -> None:
            if len(new) > MAX_RELATED:
                raise too_many_related()
            await self._require_known_of(groups, transaction)
            await configuration.keep_groups(new)
            await configuration.put_groups(new)

        await self._change(organization_id, replace)

    async def remove_group(self, organization_id: str, group_id: str) -> None:
        """Let a group no longer give roles.

        Raises:
            NotFound: The organization does not have it.
        """

        async def remove(_: Transaction, configuration: Configuration) -> None:
            if not await configuration.remove_group(group_id):
                raise missing_by_id("entity.not_found")

        await self._change(organization_id, remove)

    async def _replace(self, organization_id: str, relation: Relation, ids: Collection[str]) -> None:
        async def replace(transaction: Transaction, configuration: Configuration) -> None:
            await self._require_known(transaction, relation, ids)
            await configuration.keep(relation, ids)
            await configuration.add(relation, ids)
            await self._require_not_too_many(configuration, relation)

        await self._change(organization_id, replace)

    async def _change(self, organization_id: str, change: _Change) -> None:
        """Change the configuration; concurrent changes of that of one organization wait for each other."""

        @retry_on_conflict
        async def attempt() -> None:
            async with self._changes.transaction() as transaction:
                connection = transaction.connection
                if not await lock_organization(connection, self._tenant_id, organization_id, for_all_members=True):
                    raise missing_by_id()
                await change(transaction, Configuration(connection, self._tenant_id, organization_id))
                transaction.record_action("organization", (organization_id,), "configure-joining")

        await self._fresh_reads.with_catch_up(attempt)

    @asynccontextmanager
    async def _reading(self, organization_id: str) -> AsyncGenerator[Configuration, None]:
        async with self._reader.connect() as connection:
            yield Configuration(connection, self._tenant_id, organization_id)

    async def _require_known_of(self, groups: Sequence[JitGroup], transaction: Transaction) -> None:
        await self._require_known(transaction, "connector", {group.sso_connector_id for group in groups})
        await self._require_known(transaction, "role", rules.roles_of(groups))

    async def _require_known(self, transaction: Transaction, relation: Relation, ids: Collection[str]) -> None:
        if relation == "connector":
            if await store.lock_connectors(transaction.connection, self._tenant_id, ids) != set(ids):
                raise unknown_relation()
        elif relation == "role":
            found = await lock_roles(transaction.connection, self._tenant_id, ids, ())
            if found.ids != set(ids):
                raise unknown_relation()
            if found.types - {"User"}:
                raise wrong_kind("People get roles of the type User.")

    async def _require_not_too_many(self, configuration: Configuration, relation: Relation) -> None:
        if await configuration.count(relation) > MAX_RELATED:
            raise too_many_related()


def _new(groups: Sequence[JitGroup]) -> list[NewGroup]:
    return [
        NewGroup(new_id(), each.sso_connector_id, each.group, each_once(each.organization_role_ids)) for each in groups
    ]
