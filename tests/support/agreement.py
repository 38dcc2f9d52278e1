"""What must be one and the same in the end: what was acknowledged, the database, the stream, the directory's halves."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec
import redis

from all_in_one.provision import ServerAddresses
from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.wire.events import STREAM_STATE, AssignmentState, UserState
from identity_sdk import ManagementClient, Unavailable
from tests.support.patience import PATIENCE_S, eventually, eventually_here
from tests.support.random_writes import Writer
from token_service.directory import SmallHalf
from token_service.directory.projection import decode_state, state_key


class Database(msgspec.Struct):
    """What management-service's database says at the end."""

    users: dict[str, tuple[bool, int, frozenset[str]]]
    applications: frozenset[str]
    roles: frozenset[str]
    secrets: frozenset[tuple[str, str]]
    revision: int


async def require_agreement(
    addresses: ServerAddresses, management: ManagementClient, writers: Sequence[Writer]
) -> Database:
    """Wait until everything is out, compare everything with everything, and return what it is."""
    eventually(lambda: _is_answered(management))
    await _require_everything_is_out(addresses)
    database = await read_database(addresses)
    _require_acknowledged(writers, database)
    await _require_order(addresses, database)
    _require_large_half_is(database, addresses)
    await _require_small_half_is(database, addresses)
    return database


def _is_answered(management: ManagementClient) -> bool:
    """Write once more; when that write is answered, a service is there to send everything before it."""
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


async def _require_everything_is_out(addresses: ServerAddresses) -> None:
    async with _connection(addresses) as connection:
        deadline = time.monotonic() + PATIENCE_S
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


def _require_acknowledged(writers: Sequence[Writer], database: Database) -> None:
    """No acknowledged change is lost."""
    for writer in writers:
        for user_id, state in writer.users.items():
            unsure, stored = writer.unsure[user_id], database.users.get(user_id)
            if "there" in unsure:
                continue
            assert (stored is None) is (state is None)
            if stored is not None and state is not None:
                assert "suspended" in unsure or stored[0] == state[0]
                assert "roles" in unsure or stored[2] == state[1]
        for application_id, there in writer.applications.items():
            if "there" not in writer.unsure[application_id]:
                assert (application_id in database.applications) is there


async def _require_order(addresses: ServerAddresses, database: Database) -> None:
    """The stream holds the changes in the order in which they were made, and the watermark behind the last of them."""
    bus = Bus(addresses.token_nats_url, service="token")
    bus.start()
    try:
        await bus.connected()
        revisions: list[int] = []
        watermarks: list[int] = []
        reader = StreamReader(bus, STREAM_STATE, ["identity-internal.default.>"])
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reader.read_after(0)) as batches:
            async for batch in batches:
                for message in batch.messages:
                    (watermarks if ".revision." in message.subject else revisions).append(message.event.revision)
                if watermarks and watermarks[-1] >= database.revision:
                    break
    finally:
        await bus.stop()
    assert revisions == sorted(set(revisions))
    assert revisions[-1] >= database.revision


def _require_large_half_is(database: Database, addresses: ServerAddresses) -> None:
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        eventually(lambda: _seen(administrator) >= database.revision)
        projected = {}
        for user_id, user in _records(administrator, "user", UserState):
            roles = administrator.get(f"identity:default:assignment:user:{user_id}")
            role_ids = _decode(roles, AssignmentState).role_ids if roles else ()
            projected[user_id] = (user.is_suspended, user.tokens_valid_after, frozenset(role_ids))
    assert projected == database.users


def _seen(administrator: "redis.Redis") -> int:
    return decode_state(administrator.get(state_key("default"))).revisions.get("management", -1)


Record = TypeVar("Record", UserState, AssignmentState)


def _records(administrator: "redis.Redis", kind: str, shape: type[Record]) -> Iterator[tuple[str, Record]]:
    for key in administrator.scan_iter(f"identity:default:{kind}:*", count=1000):
        record = administrator.get(key)
        assert record is not None
        if not record.endswith(b" "):  # a tombstone is a revision and nothing behind it
            yield key.decode().rpartition(":")[2], _decode(record, shape)


def _decode(record: bytes, shape: type[Record]) -> Record:
    return msgspec.json.decode(record.partition(b" ")[2], type=shape)


async def _require_small_half_is(database: Database, addresses: ServerAddresses) -> None:
    """A replica that starts now holds exactly what the database holds."""
    bus = Bus(addresses.token_nats_url, service="token")
    bus.start()
    half = SmallHalf(bus, tenant_id="default")
    half.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        assert await half.freshness.reach({"management": database.revision}, deadline=deadline)
        await eventually_here(lambda: half.is_loaded)
        assert frozenset(half._applications) == database.applications
        assert frozenset(half._role_scopes._contents) == database.roles
        secrets = {(each.id, secret.sha256) for each in half._applications.values() for secret in each.secrets}
        assert secrets == database.secrets
    finally:
        await half.stop()
        await bus.stop()
