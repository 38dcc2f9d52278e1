"""What must agree in the end: acknowledged writes, the database, the stream, both halves of the directory."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec
import redis

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.revisions import Source
from identity_common.wire.events import STREAM_STATE, AssignmentState, UserState
from provision import ServerAddresses
from stead import ManagementClient, Unavailable
from tests.support.random_writes import GONE, Acknowledged, Key, KnownUser, UserWriter
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


async def read_database(addresses: ServerAddresses) -> Database:
    async with _connection(addresses) as connection:
        roles: dict[str, set[str]] = {}
        for row in await connection.fetch("SELECT user_id, role_id FROM user_roles"):
            roles.setdefault(row["user_id"], set()).add(row["role_id"])
        users = await connection.fetch("SELECT id, is_suspended, tokens_valid_after FROM users")
        secrets = await connection.fetch("SELECT application_id, sha256 FROM application_secrets")
        return Database(
            users={
                row["id"]: (row["is_suspended"], row["tokens_valid_after"], frozenset(roles.get(row["id"], ())))
                for row in users
            },
            applications=frozenset(row["id"] for row in await connection.fetch("SELECT id FROM applications")),
            roles=frozenset(row["id"] for row in await connection.fetch("SELECT id FROM roles")),
            secrets=frozenset((row["application_id"], row["sha256"]) for row in secrets),
            revision=await connection.fetchval("SELECT revision FROM source_revision"),
        )


def _things_of(database: Database) -> dict[Key, Any]:
    users = {("user", user_id): KnownUser(user[0], user[2]) for user_id, user in database.users.items()}
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
        await bus.connected()
        revisions: list[int] = []
        watermarks: list[int] = []
        reader = StreamReader(bus, STREAM_STATE, ["identity-internal.default.>"])
        async with asyncio.timeout(WAIT_S), contextlib.aclosing(reader.read_after(0)) as batches:
            async for batch in batches:
                for message in batch.messages:
                    (watermarks if ".revision." in message.subject else revisions).append(message.event.revision)
                if watermarks and watermarks[-1] >= database.revision:
                    break
    finally:
        await bus.stop()
    assert revisions == sorted(set(revisions))
    assert revisions[-1] >= database.revision


def _require_in_redis_directory_is(database: Database, addresses: ServerAddresses) -> None:
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        eventually(lambda: seen(administrator, "management") >= database.revision)
        projected = {}
        for (user_id,), user in records(administrator, "user", UserState):
            roles = administrator.get(f"identity:default:assignment:user:{user_id}")
            role_ids = _decode(roles, AssignmentState).role_ids if roles else ()
            projected[user_id] = (user.is_suspended, user.tokens_valid_after, frozenset(role_ids))
    assert projected == database.users


def seen(administrator: "redis.Redis", source: Source) -> int:
    """Return the last revision of a source that the directory in Redis has seen."""
    return decode_state(administrator.get(state_key("default"))).revisions.get(source, -1)


Record = TypeVar("Record", bound=msgspec.Struct)


def records(administrator: "redis.Redis", kind: str, shape: type[Record]) -> Iterator[tuple[tuple[str, ...], Record]]:
    """Yield ids and state of every record of a kind in the directory in Redis, except tombstones."""
    prefix = f"identity:default:{kind}:"
    for key in administrator.scan_iter(f"{prefix}*", count=1000):
        record = administrator.get(key)
        assert record is not None
        if not record.endswith(b" "):  # a tombstone is a revision without a state
            yield tuple(key.decode().removeprefix(prefix).split(":")), _decode(record, shape)


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
