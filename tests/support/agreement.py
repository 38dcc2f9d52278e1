"""What must agree in the end: acknowledged writes, the databases, the streams, both halves of the directory."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import asyncpg
import msgspec
import redis
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from identity_common.bus.connection import Bus
from identity_common.bus.standing_subscription import StandingSubscription
from identity_common.bus.stream_reader import ReadingInterrupted, StreamReader
from identity_common.revisions import Source
from identity_common.wire.events import STREAM_STATE, AssignmentState, ResourceState, UserState, event_subject
from provision import ServerAddresses
from stead import ManagementClient, Unavailable
from stead.event_types import (
    CloudEvent,
    GrantedPermission,
    MemberPermissionsState,
    MemberState,
    OrganizationState,
    permission_order,
)
from tests.support.random_template_changes import KnownRole, needed_by_member
from tests.support.random_writes import GONE, Acknowledged, Key, KnownUser, UserWriter
from tests.support.template_tables import TemplateTables, fold
from tests.support.waiting import WAIT_S, eventually, eventually_here
from token_service.directory import InMemoryDirectory
from token_service.directory.keys import state_key
from token_service.directory.projection import decode_state


class Database(msgspec.Struct):
    """The content of the database of management-service at the end."""

    users: dict[str, tuple[bool, int, frozenset[str]]]
    applications: frozenset[str]
    roles: frozenset[str]
    secrets: frozenset[tuple[str, str]]
    revision: int


async def require_agreement(
    addresses: ServerAddresses, management: ManagementClient, writers: Sequence[UserWriter]
) -> Database:
    """Wait until the outbox is empty, compare everything with the database, and return its content."""
    eventually(lambda: is_answered(management))
    await _require_empty_outbox(addresses)
    database = await read_database(addresses)
    for writer in writers:
        require_acknowledged(writer.known, _things_of(database))
    await _require_order(addresses, database)
    _require_in_redis_directory_is(database, addresses)
    await _require_in_memory_directory_is(database, addresses)
    return database


def is_answered(management: ManagementClient) -> bool:
    """Write once more; an answer means that a service is running that publishes all earlier writes."""
    try:
        management.users.create(name="The last one")
    except Unavailable:
        return False
    return True


@contextlib.asynccontextmanager
async def _connection(addresses: ServerAddresses) -> AsyncIterator["asyncpg.Connection[Any]"]:
    connection = await asyncpg.connect(addresses.management_database_url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()


async def _require_empty_outbox(addresses: ServerAddresses) -> None:
    async with _connection(addresses) as connection:
        deadline = time.monotonic() + WAIT_S
        while await connection.fetchval("SELECT count(*) FROM outbox"):
            assert time.monotonic() < deadline, "the outbox is not empty"


_OURS = "WHERE tenant_id = 'default'"
"""Other tests may have had tenants of their own on these servers."""


async def read_database(addresses: ServerAddresses) -> Database:
    async with _connection(addresses) as connection:
        roles: dict[str, set[str]] = {}
        for row in await connection.fetch(f"SELECT user_id, role_id FROM user_roles {_OURS}"):
            roles.setdefault(row["user_id"], set()).add(row["role_id"])
        users = await connection.fetch(f"SELECT id, is_suspended, tokens_valid_after FROM users {_OURS}")
        secrets = await connection.fetch(f"SELECT application_id, sha256 FROM application_secrets {_OURS}")
        return Database(
            users={
                row["id"]: (row["is_suspended"], row["tokens_valid_after"], frozenset(roles.get(row["id"], ())))
                for row in users
            },
            applications=frozenset(row["id"] for row in await connection.fetch(f"SELECT id FROM applications {_OURS}")),
            roles=frozenset(row["id"] for row in await connection.fetch(f"SELECT id FROM roles {_OURS}")),
            secrets=frozenset((row["application_id"], row["sha256"]) for row in secrets),
            revision=await connection.fetchval(f"SELECT revision FROM source_revision {_OURS}"),
        )


def _things_of(database: Database) -> dict[Key, Any]:
    users: dict[Key, Any] = {("user", user_id): KnownUser(user[0], user[2]) for user_id, user in database.users.items()}
    return {**users, **{("application", application_id): True for application_id in database.applications}}


def require_acknowledged(known: Acknowledged, stored: Mapping[Key, Any]) -> None:
    """No acknowledged change is lost: everything is in one of its possible states."""
    for key in known:
        assert stored.get(key, GONE) in known.states(key), key


async def _require_order(addresses: ServerAddresses, database: Database) -> None:
    """The stream holds the changes in their order, and the watermark after the last one."""
    bus = Bus(addresses.token_nats_url, service="token")
    bus.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                await bus.connected()
                with contextlib.suppress(ReadingInterrupted, NatsError):  # a cluster may still be choosing leaders
                    revisions = await _revisions(bus, database)
                    break
    finally:
        await bus.stop()
    assert revisions == sorted(set(revisions))
    assert revisions[-1] >= database.revision


async def _revisions(bus: Bus, database: Database) -> list[int]:
    """Return the revisions in the stream, up to the watermark after the last change."""
    revisions: list[int] = []
    watermarks: list[int] = []
    reader = StreamReader(bus, STREAM_STATE, ["identity-internal.default.>"])
    async with contextlib.aclosing(reader.read_after(0)) as batches:
        async for batch in batches:
            for message in batch.messages:
                (watermarks if ".revision." in message.subject else revisions).append(message.event.revision)
            if watermarks and watermarks[-1] >= database.revision:
                break
    return revisions


def _require_in_redis_directory_is(database: Database, addresses: ServerAddresses) -> None:
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        eventually(lambda: seen(administrator, "management") >= database.revision)
        projected = {}
        for (user_id,), user in records(administrator, "user", UserState):
            roles = _stored(administrator, f"identity:default:assignment:user:{user_id}")
            role_ids = _decode(roles, AssignmentState).role_ids if roles else ()
            projected[user_id] = (user.is_suspended, user.tokens_valid_after, frozenset(role_ids))
    assert projected == database.users


def seen(administrator: "redis.Redis", source: Source) -> int:
    """Return the last revision of a source that the directory in Redis has seen."""
    return decode_state(_stored(administrator, state_key("default"))).revisions.get(source, -1)


Record = TypeVar("Record", bound=msgspec.Struct)


def records(administrator: "redis.Redis", kind: str, shape: type[Record]) -> Iterator[tuple[tuple[str, ...], Record]]:
    """Yield ids and state of every record of a kind in the directory in Redis, except tombstones."""
    prefix = f"identity:default:{kind}:"
    for key in administrator.scan_iter(f"{prefix}*", count=1000):
        record = _stored(administrator, key)
        assert record is not None
        if not record.endswith(b" "):  # a tombstone is a revision without a state
            yield tuple(key.decode().removeprefix(prefix).split(":")), _decode(record, shape)


def _stored(administrator: "redis.Redis", key: str | bytes) -> bytes | None:
    value = administrator.get(key)
    assert value is None or isinstance(value, bytes)
    return value


def _decode(record: bytes, shape: type[Record]) -> Record:
    return msgspec.json.decode(record.partition(b" ")[2], type=shape)


async def _require_in_memory_directory_is(database: Database, addresses: ServerAddresses) -> None:
    """A replica that starts now holds exactly what the database holds."""
    async with loaded_in_memory_directory(addresses, {"management": database.revision}) as half:
        assert frozenset(half._applications) == database.applications
        assert frozenset(half._role_scopes._contents) == database.roles
        secrets = {(each.id, secret.sha256) for each in half._applications.values() for secret in each.secrets}
        assert secrets == database.secrets


@contextlib.asynccontextmanager
async def loaded_in_memory_directory(
    addresses: ServerAddresses, revisions: Mapping[str, int]
) -> AsyncIterator[InMemoryDirectory]:
    """Load the directory in memory as a replica that starts now does, up to these revisions."""
    bus = Bus(addresses.token_nats_url, service="token")
    bus.start()
    half = InMemoryDirectory(bus, tenant_id="default")
    half.start()
    try:
        assert await half.freshness.reach(revisions, deadline=time.monotonic() + WAIT_S)
        await eventually_here(lambda: half.is_loaded)
        yield half
    finally:
        await half.stop()
        await bus.stop()


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
    told = [_permissions_told(event) for event in events if event.type.startswith("member-permissions.")]
    assert fold(told) == await tables.held()
    versions = {(state.organization_id, state.member_id): state.version for state in told}
    assert versions == await tables.published_versions()


def _permissions_told(event: CloudEvent) -> MemberPermissionsState:
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
        subjects = [event_subject("template", "default", kind, ">") for kind in _KINDS]
        self._subscriptions = [StandingSubscription(self._bus, each, self._compare, name="watch") for each in subjects]

    async def __aenter__(self) -> Self:
        self._database = await asyncpg.create_pool(self._database_url, min_size=1, max_size=len(_KINDS))
        self._bus.start()
        for subscription in self._subscriptions:
            subscription.start()
        await self._bus.connected()
        return self

    async def __aexit__(self, *exception: object) -> None:
        for subscription in self._subscriptions:
            await subscription.stop()
        await self._bus.stop()
        await self._database.close()

    async def _compare(self, message: Msg) -> None:
        event = _decode_event(message.data)
        query = "SELECT revision FROM source_revision WHERE tenant_id = 'default'"
        if event.revision > await self._database.fetchval(query):
            self.early.append(event.id)
        self.heard += 1
