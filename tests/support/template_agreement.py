"""What must agree after changes of the organization template and of members.

Acknowledged writes, the database, the directory of token-service, and the fold of all events.
"""

from collections.abc import Collection, Mapping
from typing import Any, Self

import asyncpg
import msgspec
import redis
from nats.aio.msg import Msg

from identity_common.bus.connection import Bus
from identity_common.wire.events import ResourceState, event_subject
from provision import ServerAddresses
from stead.event_types import (
    CloudEvent,
    GrantedPermission,
    MemberPermissionsState,
    MemberState,
    OrganizationState,
    permission_order,
)
from tests.support.agreement import loaded_in_memory_directory, read_database, records, require_acknowledged, seen
from tests.support.random_template_changes import KnownRole, needed_by_member
from tests.support.random_writes import GONE, Acknowledged, Key
from tests.support.template_tables import TemplateTables, fold
from tests.support.waiting import eventually
from token_service.directory import InMemoryDirectory

_SETTLED_WITHIN_S = 120
_KINDS = ("member", "role", "permission", "organization")


async def require_template_agreement(tables: TemplateTables, addresses: ServerAddresses, known: Acknowledged) -> None:
    """Wait until every affected member has its event, then compare everything with the database."""
    management = (await read_database(addresses)).revision
    await tables.caught_up(management)
    await tables.settled(_SETTLED_WITHIN_S)
    things = await _things(tables)
    require_acknowledged(_without_cascaded(known, things), things)
    await require_told(tables)
    await _require_directory(tables, addresses, {"management": management, "template": await tables.revision()})


async def require_told(tables: TemplateTables) -> None:
    """The events lead to the state of the database, without gaps in revisions and versions."""
    events = [event for event in await tables.events(">") if event.type != "revision.published"]
    revisions = [event.revision for event in events]
    assert revisions == sorted(set(revisions)), "out of order, or stored twice"
    assert revisions == list(range(1, await tables.revision() + 1))
    told = [_decode(event) for event in events if event.type.startswith("member-permissions.")]
    assert fold(told) == await tables.held()
    versions = {(state.organization_id, state.member_id): state.version for state in told}
    assert versions == await tables.published_versions()


def _decode(event: CloudEvent) -> MemberPermissionsState:
    return msgspec.json.decode(event.data, type=MemberPermissionsState)


async def _things(tables: TemplateTables) -> dict[Key, Any]:
    """Return the content of the database, in the form in which the writers know it."""
    fetch = tables.database.fetch
    things: dict[Key, Any] = {}
    for kind, table in (("permission", "permissions"), ("organization", "organizations")):
        things |= {(kind, id_): name for id_, name in await fetch(f"SELECT id, name FROM {table}")}
    things |= {("user", id_): True for (id_,) in await fetch("SELECT id FROM known_users")}
    roles = """SELECT id, name,
        ARRAY(SELECT permission_id FROM role_permissions WHERE role_id = roles.id),
        ARRAY(SELECT scope_id FROM role_scopes WHERE role_id = roles.id) FROM roles"""
    for id_, name, permission_ids, scope_ids in await fetch(roles):
        things["role", id_] = KnownRole(name, frozenset(permission_ids), frozenset(scope_ids))
    for (organization_id, member_id), role_ids in (await _members(tables)).items():
        things["member", organization_id, member_id] = frozenset(role_ids)
    return things


async def _members(tables: TemplateTables) -> dict[tuple[str, str], tuple[str, ...]]:
    members = """SELECT organization_id, member_id, ARRAY(SELECT role_id FROM member_roles AS held
        WHERE held.organization_id = members.organization_id AND held.member_id = members.member_id
        ) FROM members"""
    rows = await tables.database.fetch(members)
    return {(organization_id, member_id): tuple(sorted(role_ids)) for organization_id, member_id, role_ids in rows}


def _without_cascaded(known: Acknowledged, things: Mapping[Key, Any]) -> Acknowledged:
    """Return the acknowledged states without everything that was deleted along with something else."""
    left = Acknowledged()
    for key in known:
        left.put(key, *(_left(key, state, things) for state in known.states(key)))
    return left


def _left(key: Key, state: Any, things: Mapping[Key, Any]) -> Any:
    if key[0] == "role" and state is not GONE:
        return state._replace(permission_ids=frozenset(_existing("permission", state.permission_ids, things)))
    if key[0] == "member" and state is not GONE:
        is_over = any(needed not in things for needed in needed_by_member(key))
        return GONE if is_over else frozenset(_existing("role", state, things))
    return state


def _existing(kind: str, ids: Collection[str], things: Mapping[Key, Any]) -> list[str]:
    return [each for each in ids if (kind, each) in things]


async def _require_directory(tables: TemplateTables, addresses: ServerAddresses, revisions: Mapping[str, int]) -> None:
    """Both halves of the directory hold the same members, with the permissions that the database says."""
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        eventually(lambda: seen(administrator, "template") >= revisions["template"])
        living = {
            organization_id for (organization_id,), _ in records(administrator, "organization", OrganizationState)
        }
        members = {
            ids: tuple(sorted(member.role_ids))
            for ids, member in records(administrator, "member", MemberState)
            if ids[0] in living
        }
    assert members == await _members(tables)
    grantable = await tables.grantable()
    async with loaded_in_memory_directory(addresses, revisions) as half:
        held = {key: _held(half, role_ids, grantable) for key, role_ids in members.items()}
    assert {key: permissions for key, permissions in held.items() if permissions} == await tables.held()


def _held(
    half: InMemoryDirectory, role_ids: Collection[str], grantable: Mapping[str | None, frozenset[str]]
) -> tuple[GrantedPermission, ...]:
    held = {
        GrantedPermission(name, indicator)
        for indicator, names in grantable.items()
        for name in half.held_in_organization(_resource(half, indicator), role_ids, names)
    }
    return tuple(sorted(held, key=permission_order))


def _resource(half: InMemoryDirectory, indicator: str | None) -> ResourceState | None:
    if indicator is None:
        return None
    resource = half.resource(indicator)
    assert resource is not None
    return resource


_decode_event = msgspec.json.Decoder(CloudEvent).decode


class CommitWatch:
    """Compares every event of template-service, on receipt, with the committed revision.

    Attributes:
        heard: The number of received events; none arrive while NATS is down.
        early: The ids of those that were published before their commit.
    """

    def __init__(self, addresses: ServerAddresses) -> None:
        self.heard = 0
        self.early: list[str] = []
        self._database_url = addresses.template_database_url.replace("+asyncpg", "")
        self._database: asyncpg.Pool
        self._bus = Bus(addresses.template_nats_url, service="template")

    async def __aenter__(self) -> Self:
        self._database = await asyncpg.create_pool(self._database_url, min_size=1, max_size=len(_KINDS))
        self._bus.start()
        await self._bus.connected()
        for kind in _KINDS:
            await self._bus.client.subscribe(event_subject("template", "default", kind, ">"), cb=self._compare)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._bus.stop()
        await self._database.close()

    async def _compare(self, message: Msg) -> None:
        event = _decode_event(message.data)
        query = "SELECT revision FROM source_revision WHERE tenant_id = 'default'"
        if event.revision > await self._database.fetchval(query):
            self.early.append(event.id)
        self.heard += 1
