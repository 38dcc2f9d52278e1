"""The template of a tenant, changed by SQL as the use cases do: many members in one statement."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import asyncpg
import msgspec
import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.streams import published_revision
from identity_common.identifiers import new_id, new_short_id
from identity_common.outbox.changes import Changes, Transaction
from identity_common.progress import Progress
from identity_common.stores.database import create_database_engine
from identity_common.wire.events import STREAM_EVENTS
from stead.event_types import (
    CloudEvent,
    GrantedPermission,
    MemberPermissionsState,
    MemberState,
    MemberType,
    OrganizationPermissionState,
    OrganizationRoleState,
    OrganizationState,
    permission_order,
)
from template_service.fan_out.requests import (
    request_member_fan_out,
    request_organization_fan_out,
    request_role_fan_out,
)
from template_service.role_contents.events import record_roles
from tests.support.waiting import WAIT_S

JOINED_AT: Final = 1_700_000_000_000
"""When every member joined."""

Key = tuple[str, str]
"""An organization and a member of it."""

_HELD = """
    WITH assigned AS (
        SELECT member_roles.organization_id, member_roles.member_id, member_roles.role_id FROM member_roles
        JOIN members USING (tenant_id, organization_id, member_id)
        JOIN organizations ON organizations.tenant_id = $1 AND organizations.id = member_roles.organization_id
        WHERE member_roles.tenant_id = $1
    )
    SELECT organization_id, member_id, permissions.name, NULL AS resource
    FROM assigned JOIN role_permissions AS held ON held.tenant_id = $1 AND held.role_id = assigned.role_id
    JOIN permissions ON permissions.tenant_id = $1 AND permissions.id = held.permission_id
    UNION
    SELECT organization_id, member_id, known_scopes.name, known_resources.indicator
    FROM assigned JOIN role_scopes AS held ON held.tenant_id = $1 AND held.role_id = assigned.role_id
    JOIN known_scopes ON known_scopes.tenant_id = $1 AND known_scopes.id = held.scope_id
    JOIN known_resources ON known_resources.tenant_id = $1 AND known_resources.id = known_scopes.resource_id
"""


class TemplateTables:
    """Changes of one tenant's template, each with its fan-out request in the same transaction.

    Attributes:
        engine: For the database of the service.
        changes: Records through the outbox; the service's relay publishes.
    """

    def __init__(self, database_url: str, subscriber_nats_url: str, tenant_id: str) -> None:
        self.tenant_id = tenant_id
        self.engine: AsyncEngine = create_database_engine(database_url, service="tests", pool_size=10)
        self.changes = Changes(
            self.engine, source="template", tenant_id=tenant_id, published=Progress(), may_return=("member",)
        )
        self._database_url = database_url.replace("+asyncpg", "")
        self._subscriber_nats_url = subscriber_nats_url
        self.database: asyncpg.Connection

    async def __aenter__(self) -> Self:
        self.database = await asyncpg.connect(self._database_url, server_settings={"application_name": "tests"})
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.database.close()
        await self.engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        async with self.changes.transaction(await_publication=False) as transaction:
            yield transaction

    async def execute(self, transaction: Transaction, statement: str, **values: Any) -> None:
        await transaction.connection.execute(text(statement), {"tenant": self.tenant_id, **values})

    async def permission(self, name: str) -> str:
        permission_id = new_id()
        async with self.transaction() as transaction:
            statement = "INSERT INTO permissions (tenant_id, id, name, version) VALUES (:tenant, :id, :name, 1)"
            await self.execute(transaction, statement, id=permission_id, name=name)
            state = OrganizationPermissionState(id=permission_id, name=name)
            transaction.record("permission", (permission_id,), "created", state)
        return permission_id

    async def permissions(self, names: Sequence[str]) -> list[str]:
        """Add permissions without events: the initial state of a test."""
        ids = [new_id() for _ in names]
        statement = """INSERT INTO permissions (tenant_id, id, name, version)
            SELECT $1, id, name, 1 FROM unnest($2::text[], $3::text[]) AS given (id, name)"""
        await self.database.execute(statement, self.tenant_id, ids, names)
        return ids

    async def role(self, *permission_ids: str, scope_ids: Collection[str] = (), kind: str = "User") -> str:
        role_id = new_id()
        async with self.transaction() as transaction:
            statement = "INSERT INTO roles (tenant_id, id, name, type, version) VALUES (:tenant, :id, :id, :kind, 1)"
            await self.execute(transaction, statement, id=role_id, kind=kind)
            await self._grant(transaction, role_id, permission_ids, scope_ids)
            await record_roles(transaction, self.tenant_id, [role_id], "created")
        return role_id

    async def grant(self, role_id: str, *permission_ids: str, scope_ids: Collection[str] = ()) -> None:
        async with self.transaction() as transaction:
            await self._grant(transaction, role_id, permission_ids, scope_ids)
            await self.role_changed(transaction, role_id)

    async def revoke(self, role_id: str, *permission_ids: str) -> None:
        async with self.transaction() as transaction:
            statement = """DELETE FROM role_permissions
                WHERE tenant_id = :tenant AND role_id = :role AND permission_id = ANY(:ids)"""
            await self.execute(transaction, statement, role=role_id, ids=list(permission_ids))
            await self.role_changed(transaction, role_id)

    async def role_changed(self, transaction: Transaction, role_id: str) -> None:
        await record_roles(transaction, self.tenant_id, [role_id])
        await request_role_fan_out(transaction, self.tenant_id, role_id, "role-changed")

    async def delete_role(self, role_id: str) -> None:
        async with self.transaction() as transaction:
            await self.execute(transaction, "DELETE FROM roles WHERE tenant_id = :tenant AND id = :id", id=role_id)
            state = OrganizationRoleState(id=role_id, deleted=True)
            transaction.record("role", (role_id,), "deleted", state)
            await request_role_fan_out(transaction, self.tenant_id, role_id, "role-deleted")

    async def rename_permission(self, permission_id: str, name: str) -> None:
        async with self.transaction() as transaction:
            statement = "UPDATE permissions SET name = :name WHERE tenant_id = :tenant AND id = :id"
            await self.execute(transaction, statement, id=permission_id, name=name)
            state = OrganizationPermissionState(id=permission_id, name=name)
            transaction.record("permission", (permission_id,), "updated", state)
            for role_id in await self._roles_granting(transaction, permission_id):
                await request_role_fan_out(transaction, self.tenant_id, role_id, "permission-changed")

    async def delete_permission(self, permission_id: str) -> None:
        async with self.transaction() as transaction:
            role_ids = await self._roles_granting(transaction, permission_id)
            statement = "DELETE FROM permissions WHERE tenant_id = :tenant AND id = :id"
            await self.execute(transaction, statement, id=permission_id)
            state = OrganizationPermissionState(id=permission_id, deleted=True)
            transaction.record("permission", (permission_id,), "deleted", state)
            await record_roles(transaction, self.tenant_id, role_ids)
            for role_id in role_ids:
                await request_role_fan_out(transaction, self.tenant_id, role_id, "permission-deleted")

    async def organization(self) -> str:
        async with self.transaction() as transaction:
            return await self.make_organization(transaction)

    async def make_organization(self, transaction: Transaction) -> str:
        organization_id = new_short_id()
        statement = """INSERT INTO organizations
            (tenant_id, id, name, custom_data, is_mfa_required, color, branding, created_at)
            VALUES (:tenant, :id, :id, '{}', true, '{}', '{}', 0)"""
        await self.execute(transaction, statement, id=organization_id)
        state = OrganizationState(id=organization_id, name=organization_id, is_mfa_required=True)
        transaction.record("organization", (organization_id,), "created", state)
        return organization_id

    async def delete_organization(self, organization_id: str) -> None:
        async with self.transaction() as transaction:
            statement = "DELETE FROM organizations WHERE tenant_id = :tenant AND id = :id"
            await self.execute(transaction, statement, id=organization_id)
            state = OrganizationState(id=organization_id, deleted=True)
            transaction.record("organization", (organization_id,), "deleted", state)
            await request_organization_fan_out(transaction, self.tenant_id, organization_id, "organization-deleted")

    async def members(
        self,
        organization_id: str,
        count: int,
        *role_ids: str,
        kind: MemberType = "user",
        ids: Sequence[str] = (),
        quietly: bool = False,
        rejoined: bool = False,
    ) -> list[str]:
        """Add this many members with these roles; return their ids, sorted.

        Args:
            quietly: Without events: the initial state of a test.
            rejoined: See ``MemberState``.
        """
        member_ids = sorted(ids or (new_short_id() for _ in range(count)))
        async with self.transaction() as transaction:
            statement = """INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at, rejoined)
                SELECT :tenant, :organization, unnest(CAST(:members AS text[])), :kind, :joined, :rejoined"""
            values = {"organization": organization_id, "members": member_ids, "joined": JOINED_AT, "rejoined": rejoined}
            await self.execute(transaction, statement, **values, kind=kind)
            await self._assign(transaction, organization_id, member_ids, role_ids)
            if not quietly:
                for member_id in member_ids:
                    state = MemberState(
                        organization_id=organization_id,
                        member_id=member_id,
                        member_type=kind,
                        joined_at=JOINED_AT,
                        rejoined=rejoined,
                        role_ids=tuple(sorted(role_ids)),
                    )
                    transaction.record("member", (organization_id, member_id), "created", state)
                await request_member_fan_out(transaction, self.tenant_id, organization_id, member_ids, "assignment")
        return member_ids

    async def assign(self, organization_id: str, member_ids: Sequence[str], *role_ids: str) -> None:
        async with self.transaction() as transaction:
            await self._assign(transaction, organization_id, member_ids, role_ids)
            await request_member_fan_out(transaction, self.tenant_id, organization_id, member_ids, "assignment")

    async def unassign(self, organization_id: str, member_ids: Sequence[str], *role_ids: str) -> None:
        async with self.transaction() as transaction:
            statement = """DELETE FROM member_roles WHERE tenant_id = :tenant AND organization_id = :organization
                AND member_id = ANY(:members) AND role_id = ANY(:roles)"""
            values = {"organization": organization_id, "members": list(member_ids), "roles": list(role_ids)}
            await self.execute(transaction, statement, **values)
            await request_member_fan_out(transaction, self.tenant_id, organization_id, member_ids, "assignment")

    async def remove(self, organization_id: str, *member_ids: str) -> None:
        async with self.transaction() as transaction:
            statement = """DELETE FROM members WHERE tenant_id = :tenant AND organization_id = :organization
                AND member_id = ANY(:members)"""
            await self.execute(transaction, statement, organization=organization_id, members=list(member_ids))
            for member_id in member_ids:
                state = MemberState(organization_id=organization_id, member_id=member_id, deleted=True)
                transaction.record("member", (organization_id, member_id), "deleted", state)
            await request_member_fan_out(transaction, self.tenant_id, organization_id, member_ids, "member-removed")

    async def known_scope(self, name: str, indicator: str) -> str:
        """Add a known scope of a new resource, as the projection does."""
        resource_id, scope_id = new_id(), new_id()
        statement = "INSERT INTO known_resources (tenant_id, id, name, indicator) VALUES ($1, $2, $3, $3)"
        await self.database.execute(statement, self.tenant_id, resource_id, indicator)
        statement = "INSERT INTO known_scopes (tenant_id, id, resource_id, name) VALUES ($1, $2, $3, $4)"
        await self.database.execute(statement, self.tenant_id, scope_id, resource_id, name)
        return scope_id

    async def _grant(
        self, transaction: Transaction, role_id: str, permission_ids: Collection[str], scope_ids: Collection[str]
    ) -> None:
        for table, column, ids in (
            ("role_permissions", "permission_id", permission_ids),
            ("role_scopes", "scope_id", scope_ids),
        ):
            statement = f"""INSERT INTO {table} (tenant_id, role_id, {column})
                SELECT :tenant, :role, unnest(CAST(:ids AS text[]))"""
            await self.execute(transaction, statement, role=role_id, ids=list(ids))

    async def _assign(
        self, transaction: Transaction, organization_id: str, member_ids: Sequence[str], role_ids: Sequence[str]
    ) -> None:
        statement = """INSERT INTO member_roles (tenant_id, organization_id, member_id, role_id)
            SELECT :tenant, :organization, member_id, role_id
            FROM unnest(CAST(:members AS text[])) AS member_id, unnest(CAST(:roles AS text[])) AS role_id
            ON CONFLICT DO NOTHING"""
        values = {"organization": organization_id, "members": list(member_ids), "roles": list(role_ids)}
        await self.execute(transaction, statement, **values)

    async def _roles_granting(self, transaction: Transaction, permission_id: str) -> list[str]:
        """Return the roles that grant a permission, locked as the use cases lock them."""
        statement = """SELECT id FROM roles WHERE tenant_id = :tenant AND id IN (
                SELECT role_id FROM role_permissions WHERE tenant_id = :tenant AND permission_id = :id
            ) ORDER BY id FOR NO KEY UPDATE"""
        values = {"tenant": self.tenant_id, "id": permission_id}
        return list(await transaction.connection.scalars(text(statement), values))

    async def settled(self, timeout_s: float = 20) -> None:
        """Wait until every fan-out is done and every event is published."""
        waiting = "SELECT EXISTS (SELECT FROM fan_outs WHERE tenant_id = $1)"
        out = "SELECT NOT EXISTS (SELECT FROM outbox WHERE tenant_id = $1 AND revision = $2)"
        async with asyncio.timeout(timeout_s):
            while await self.database.fetchval(waiting, self.tenant_id):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)
            revision = await self.revision()
            # Rows are deleted in order, the last one last; a scan for any row would step over all dead ones.
            while not await self.database.fetchval(out, self.tenant_id, revision):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)

    async def caught_up(self, management: int) -> None:
        """Wait until this revision of management-service has arrived."""
        query = "SELECT revision FROM projection_position WHERE tenant_id = $1"
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(query, self.tenant_id) < management:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)

    async def revision(self) -> int:
        """Return the current revision."""
        query = "SELECT revision FROM source_revision WHERE tenant_id = $1"
        return int(await self.database.fetchval(query, self.tenant_id))

    async def grantable(self) -> dict[str | None, frozenset[str]]:
        """Return the names of all organization permissions, and the scope names of each resource."""
        query = """SELECT NULL, array_agg(name) FROM permissions WHERE tenant_id = $1
            UNION ALL SELECT indicator, array_agg(known_scopes.name) FROM known_scopes
            JOIN known_resources ON known_resources.tenant_id = $1 AND known_resources.id = resource_id
            WHERE known_scopes.tenant_id = $1 GROUP BY indicator"""
        rows = await self.database.fetch(query, self.tenant_id)
        return {indicator: frozenset(names or ()) for indicator, names in rows}

    async def held(self) -> dict[Key, tuple[GrantedPermission, ...]]:
        """Return the permissions of every member by the database; members without permissions are omitted."""
        held: dict[Key, list[GrantedPermission]] = {}
        for organization_id, member_id, name, resource in await self.database.fetch(_HELD, self.tenant_id):
            held.setdefault((organization_id, member_id), []).append(GrantedPermission(name, resource))
        return {key: tuple(sorted(each, key=permission_order)) for key, each in held.items()}

    async def published_versions(self) -> dict[Key, int]:
        """Return the version last published of each member."""
        statement = "SELECT organization_id, member_id, version FROM published_permissions WHERE tenant_id = $1"
        return {(row[0], row[1]): row[2] for row in await self.database.fetch(statement, self.tenant_id)}

    async def events(self, *subject: str) -> list[CloudEvent]:
        """Return every event in the stream on these subjects, in order; ``*`` and ``>`` are wildcards."""
        bus = await nats.connect(self._subscriber_nats_url)
        try:
            await self._copied(bus.jetstream())
            subscription = await bus.jetstream().pull_subscribe(
                ".".join(("identity", self.tenant_id, *subject)),
                stream=STREAM_EVENTS,
                config=ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True),
            )
            pending = (await subscription.consumer_info()).num_pending or 0
            messages: list[CloudEvent] = []
            while len(messages) < pending:
                fetched = await subscription.fetch(min(1000, pending - len(messages)), timeout=5)
                messages += [msgspec.json.decode(message.data, type=CloudEvent) for message in fetched]
            return messages
        finally:
            await bus.close()

    async def _copied(self, jetstream: JetStreamContext) -> None:
        """Wait until the subscribers' copy of the stream has everything that is published."""
        wanted = await self.revision()
        async with asyncio.timeout(WAIT_S):
            while await published_revision(jetstream, "template", self.tenant_id) < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def last_events(self) -> dict[str, CloudEvent]:
        """Return the last event of every aggregate, by kind and ids: ``member.<org>.<id>``; without watermarks."""
        last: dict[str, CloudEvent] = {}
        for event in await self.events(">"):
            last[f"{event.type.partition('.')[0]}.{event.subject.replace('/', '.')}"] = event
        return {name: event for name, event in last.items() if not name.startswith("revision.")}

    async def told(self, organization_id: str = "*", member_id: str = "*") -> list[MemberPermissionsState]:
        """Return the data of every event of members' permissions, in order."""
        events = await self.events("member-permissions", organization_id, member_id)
        return [msgspec.json.decode(event.data, type=MemberPermissionsState) for event in events]


def fold(told: Collection[MemberPermissionsState]) -> dict[Key, tuple[GrantedPermission, ...]]:
    """Return the permissions of members by the events alone; members without permissions are omitted.

    Checks what every subscriber relies on: versions grow by exactly 1, and added and removed permissions lead from one
    state to the next.
    """
    states: dict[Key, MemberPermissionsState] = {}
    for state in told:
        key = (state.organization_id, state.member_id)
        before = states.get(key)
        if state.cause == "republished":
            assert (state.added, state.removed) == ((), ())
            assert before is None or (before.version, before.permissions) == (state.version, state.permissions)
        else:
            assert state.version == (before.version if before else 0) + 1, (state, before)
            old, new = set(before.permissions if before else ()), set(state.permissions)
            assert (set(state.added), set(state.removed)) == (new - old, old - new), (state, before)
            assert state.added or state.removed, state
        assert list(state.permissions) == sorted(set(state.permissions), key=permission_order)
        states[key] = state
    return {key: state.permissions for key, state in states.items() if state.permissions}
