"""The copy of the revocations: whatever happens to Redis or to a replica, a missing one is always noticed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
import pytest_asyncio
from redis.asyncio import Connection as RedisConnection
from redis.asyncio import ConnectionPool, Redis
from sqlalchemy import event, text

from identity_common.access.revocations import RevocationReader
from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_id, new_token_id
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.impersonations import ImpersonationEnd
from identity_common.wire.revocations import CopyPosition, cutoff_id, position_key, revocation_key, revoking_ids
from management_service.impersonations.revoking import EndRevocations
from provision import ServerAddresses
from tests.support.authorizing import Stores, opened, until_a_transaction_waits
from tests.support.running_stack import RunningStack
from tests.support.tenant_keys import read_keys, replace_keys
from tests.support.waiting import WAIT_S, eventually_here
from token_service.presented_tokens.revocations import Revocation, Revocations
from token_service.presented_tokens.revocations.store import delete_expired_revocations, insert_revocations

pytestmark = pytest.mark.servers

SOON = 3_600_000


class Replicas:
    """Two replicas, in their own tenant."""

    def __init__(self, one: Stores, other: Stores, tenant_id: str, administrator: Redis) -> None:  # type: ignore[type-arg]
        self.one = one
        self.other = other
        self.tenant_id = tenant_id
        self.administrator = administrator

    async def revoke(self, *revoked: str, stores: Stores | None = None) -> None:
        expires_at = now_ms() + SOON
        await (stores or self.one).revocations.revoke(*(Revocation(each, expires_at) for each in revoked))

    async def position(self) -> CopyPosition:
        return CopyPosition.parse(await self.administrator.get(position_key(self.tenant_id)))

    async def dump(self) -> dict[bytes, bytes]:
        """Return the current copy: the content of a Redis replica that lags behind from now on."""
        return await read_keys(self.administrator, self.tenant_id)

    async def replace_copy(self, copy: dict[bytes, bytes]) -> None:
        await replace_keys(self.administrator, self.tenant_id, copy)


class HeldConnections(ConnectionPool):
    """Connections to Redis that are held back until they are released."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.wanted = asyncio.Event()
        self.released = asyncio.Event()

    async def get_connection(self, *arguments: Any, **settings: Any) -> Any:
        self.wanted.set()
        await self.released.wait()
        return await super().get_connection(*arguments, **settings)


class HoldingReplies(RedisConnection):
    """A connection to Redis whose next reply is held back, if it is told until when."""

    next_until: ClassVar[asyncio.Event | None] = None

    async def read_response(self, *arguments: Any, **settings: Any) -> Any:
        reply = await super().read_response(*arguments, **settings)
        until, HoldingReplies.next_until = HoldingReplies.next_until, None
        if until is not None:
            await until.wait()
        return reply


@pytest_asyncio.fixture
async def replicas(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Replicas]:
    tenant_id = f"t{secrets.token_hex(6)}"
    async with AsyncExitStack() as stacked:
        one, other = [
            await stacked.enter_async_context(
                opened(database_url=servers.token_database_url, redis_url=servers.token_redis_url, tenant_id=tenant_id)
            )
            for _ in range(2)
        ]
        administrator: Redis = Redis.from_url(servers.admin_redis_url)  # type: ignore[type-arg]
        yield Replicas(one, other, tenant_id, administrator)
        await administrator.aclose()


@pytest.mark.parametrize("position", [CopyPosition(0, True), CopyPosition(17, True), CopyPosition(17, False)])
def test_a_position_survives_formatting_and_parsing(position: CopyPosition) -> None:
    assert CopyPosition.parse(position.format()) == position


def test_a_token_is_revoked_by_the_ids_of_itself_its_key_and_its_authorization() -> None:
    assert revoking_ids("abc", "kid") == ("abc", "key:kid")
    assert revoking_ids("family.abc", "kid") == ("family.abc", "key:kid", "family")


def test_a_token_is_revoked_by_every_impersonation_that_it_was_got_in() -> None:
    assert revoking_ids("outer.inner.own.abc", "kid") == ("outer.inner.own.abc", "key:kid", "outer", "inner", "own")


async def test_a_revocation_at_one_replica_takes_effect_at_all_at_once(replicas: Replicas) -> None:
    """It is durable, and known everywhere, before the answer."""
    token, family = new_token_id(), new_id()
    assert not await replicas.other.revocations.is_revoked(token, "kid")
    await replicas.revoke(token, family)

    seen = [
        await replicas.other.revocations.is_revoked(each, "kid") for each in (token, f"{family}.x", family, "other")
    ]
    assert seen == [True, True, True, False]


async def test_an_emptied_redis_is_refilled_by_the_first_lookup(replicas: Replicas) -> None:
    """CVE-2026-9802: a revoked token stays revoked."""
    revoked = [new_token_id() for _ in range(20)]
    await replicas.revoke(*revoked)
    await replicas.replace_copy({})

    answers = await asyncio.gather(
        *(replicas.other.revocations.is_revoked(each, "kid") for each in [*revoked, "other"])
    )
    assert answers == [True] * 20 + [False]
    assert await replicas.position() == CopyPosition(20, True)


async def test_a_failover_to_an_older_copy_is_noticed_by_every_replica_that_has_seen_a_newer_one(
    replicas: Replicas,
) -> None:
    """The older copy claims to be complete, as it once was."""
    await replicas.revoke("first")
    older = await replicas.dump()
    await replicas.revoke("second")
    assert await replicas.other.revocations.is_revoked("second", "kid")
    await replicas.replace_copy(older)

    assert await replicas.other.revocations.is_revoked("second", "kid")
    assert await replicas.position() == CopyPosition(2, True)


async def test_a_failover_to_an_older_copy_is_noticed_by_the_replica_that_revoked(replicas: Replicas) -> None:
    """A position that it has written counts as seen, although it has never read it back."""
    await replicas.revoke("first")
    older = await replicas.dump()
    await replicas.revoke("second")
    await replicas.replace_copy(older)

    assert await replicas.one.revocations.is_revoked("second", "kid")


async def test_a_failover_to_an_older_copy_is_repaired_by_the_next_poll_of_the_database(replicas: Replicas) -> None:
    """A replica that has not seen a newer copy polls the database every two seconds."""
    await replicas.revoke("first")
    older = await replicas.dump()
    await replicas.revoke("second")
    await replicas.replace_copy(older)
    replicas.other.revocations.start()
    try:
        for _ in range(100):
            if (await replicas.position()).number == 2:
                break
            await asyncio.sleep(0.05)
    finally:
        await replicas.other.revocations.stop()

    assert await replicas.other.revocations.is_revoked("second", "kid")


async def test_what_another_service_ended_is_in_the_copy_at_the_return_and_stored_once(replicas: Replicas) -> None:
    await replicas.revoke("before")
    ended = Revocation("ended", now_ms() + SOON)
    await replicas.one.revocations.require([ended])
    copied = await replicas.position()
    assert copied == CopyPosition(2, is_whole=True)
    assert await replicas.other.revocations.is_revoked("ended", "kid")

    for stores in (replicas.one, replicas.other):  # each replica reads of it, again after every start
        await stores.revocations.require([ended])
    assert await replicas.position() == copied


@pytest.mark.parametrize("is_earlier_first", [True, False])
@pytest.mark.parametrize("by_management", [(True, False), (False, True), (True, True), (False, False)])
async def test_of_two_ends_of_a_party_the_copy_keeps_the_later(
    replicas: Replicas, servers: ServerAddresses, by_management: tuple[bool, bool], is_earlier_first: bool
) -> None:
    """Whichever service writes which, in whichever order: the value, and the time until it expires."""
    now, ended = now_ms(), cutoff_id("user:ann")
    two = [Revocation(ended, now + SOON, begun_until=now), Revocation(ended, now + 2 * SOON, begun_until=now + 5)]
    redis: Redis = connect_redis(servers.management_redis_url)  # type: ignore[type-arg]
    ends = EndRevocations(redis, tenant_id=replicas.tenant_id, replicas=0)
    await replicas.revoke("before")
    for each, is_by_management in zip(two if is_earlier_first else two[::-1], by_management, strict=True):
        if is_by_management:
            before = await replicas.position()
            await ends.write(ImpersonationEnd(each.id, each.expires_at, each.begun_until))
            assert await replicas.position() == before
        else:
            await replicas.one.revocations.revoke(each)
    await redis.aclose()

    key = revocation_key(replicas.tenant_id, ended)
    assert int(await replicas.administrator.get(key)) == now + 5
    assert SOON < await replicas.administrator.pttl(key) <= 2 * SOON


async def test_a_replica_that_dies_between_commit_and_copy_loses_nothing(replicas: Replicas) -> None:
    await replicas.revoke("first")
    async with replicas.one.engine.begin() as connection:
        # The replica dies after this commit.
        await replicas.one.revocations.record(connection, [Revocation("second", now_ms() + SOON)])
    await replicas.revoke("third", stores=replicas.other)

    assert [await replicas.other.revocations.is_revoked(each, "kid") for each in ("first", "second", "third")] == [
        True
    ] * 3


async def test_what_two_replicas_revoke_at_once_is_in_the_copy_of_the_first_that_returns(
    replicas: Replicas, servers: ServerAddresses
) -> None:
    """The second gives the row another number while the first reads the rows up to the number that it knows of."""
    await replicas.revoke("before")
    async with replicas.one.engine.begin() as connection:
        await insert_revocations(connection, replicas.tenant_id, [Revocation("both", now_ms() + SOON)])

    async def revoke_too() -> None:
        urls = {"database_url": servers.token_database_url, "redis_url": servers.token_redis_url}
        async with opened(**urls, tenant_id=replicas.tenant_id) as other, other.engine.begin() as connection:
            await insert_revocations(connection, replicas.tenant_id, [Revocation("both", now_ms() + 2 * SOON)])

    interrupted = []

    def before(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM revocations" in statement and not interrupted:
            interrupted.append(statement)
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, revoke_too()).result()

    event.listen(replicas.one.engine.sync_engine, "before_cursor_execute", before)
    await replicas.one.revocations.copy()
    assert interrupted
    assert await replicas.one.revocations.is_revoked("both", "kid")
    assert (await replicas.position()).number == 2  # the copy of the second replica is still to come
    await replicas.other.revocations.copy()
    assert await replicas.one.revocations.is_revoked("both", "kid")
    assert (await replicas.position()).number == 3


@pytest.mark.heavy
async def test_concurrent_revocations_survive_a_redis_that_is_emptied_repeatedly(replicas: Replicas) -> None:
    """The copy is the fold of the rows, whichever replica copies, and whatever is lost in the meantime."""
    revoked = [f"{number}.x" for number in range(120)]
    turn = asyncio.Semaphore(8)  # less than the connection pool: a long wait for a connection is an error

    async def revoke(number: int) -> None:
        async with turn:
            await replicas.revoke(str(number), stores=(replicas.one, replicas.other)[number % 2])

    async def lose() -> None:
        for _ in range(15):
            await asyncio.sleep(0.01)
            await replicas.replace_copy({})

    await asyncio.gather(lose(), *(revoke(number) for number in range(120)))
    assert all([await replicas.other.revocations.is_revoked(each, "kid") for each in revoked])
    assert (await replicas.position()).is_whole


async def test_a_copy_that_was_started_before_a_loss_does_not_count_as_complete(
    replicas: Replicas, servers: ServerAddresses
) -> None:
    """Redis is empty as when the slow replica started, but a revocation was copied and lost in between."""
    await replicas.revoke("first")
    await replicas.replace_copy({})
    connections = HeldConnections.from_url(servers.token_redis_url)
    slow = Revocations(
        replicas.other.engine,
        Redis(connection_pool=connections),
        RedisCommands(replicas.other.redis),
        tenant_id=replicas.tenant_id,
        replicas=0,
    )
    copying = asyncio.create_task(slow.copy())
    async with asyncio.timeout(WAIT_S):
        await connections.wanted.wait()
    await replicas.revoke("second")
    await replicas.replace_copy({})
    connections.released.set()
    await copying

    assert await replicas.position() == CopyPosition(2, True)
    assert await replicas.other.revocations.is_revoked("second", "kid")
    await connections.aclose()


@pytest.mark.heavy
@pytest.mark.parametrize("count", [2**8, 2**13 + 1])
async def test_many_revocations_are_copied_in_parts_and_none_is_left_out(replicas: Replicas, count: int) -> None:
    await replicas.revoke(*(f"t{number}" for number in range(count)))
    await replicas.replace_copy({})
    await replicas.other.revocations.copy()

    keys = {key async for key in replicas.administrator.scan_iter(f"identity:{replicas.tenant_id}:revocation:*")}
    assert keys == {revocation_key(replicas.tenant_id, f"t{number}").encode() for number in range(count)}


async def test_an_incomplete_copy_is_completed_before_it_is_read(replicas: Replicas) -> None:
    """A missing entry in an incomplete copy does not mean "not revoked"."""
    await replicas.revoke("first", "second")
    await replicas.replace_copy({position_key(replicas.tenant_id).encode(): CopyPosition(0, False).format()})

    assert await replicas.other.revocations.is_revoked("first", "kid")


async def test_a_copy_that_is_lost_while_it_is_continued_starts_again(replicas: Replicas) -> None:
    """The continuation of one copy does not complete another one."""
    await replicas.revoke("first")
    async with replicas.one.engine.begin() as connection:
        await replicas.one.revocations.record(connection, [Revocation("second", now_ms() + SOON)])
    async with replicas.one.engine.begin() as connection:
        await connection.execute(text("LOCK TABLE revocations"))
        copying = asyncio.create_task(replicas.other.revocations.copy())
        await until_a_transaction_waits(connection)
        await replicas.replace_copy({})
    await copying

    assert await replicas.position() == CopyPosition(2, True)
    assert [await replicas.one.revocations.is_revoked(each, "kid") for each in ("first", "second")] == [True] * 2


async def test_a_database_restored_from_a_backup_continues_the_count(replicas: Replicas) -> None:
    """Otherwise the next revocation would look as if it had already been copied."""
    await replicas.revoke("first", "second")
    async with replicas.one.engine.begin() as connection:
        for table in ("revocations", "revocation_counts"):
            await connection.execute(text(f"DELETE FROM {table} WHERE tenant_id = :t"), {"t": replicas.tenant_id})
    await replicas.revoke("third")

    assert replicas.one.revocations.found_lost_at_s > 0
    assert [await replicas.other.revocations.is_revoked(each, "kid") for each in ("first", "second", "third")] == [
        True
    ] * 3
    await replicas.replace_copy({})
    assert await replicas.other.revocations.is_revoked("third", "kid")


async def test_after_a_failover_that_lost_a_revocation_later_ones_take_effect(replicas: Replicas) -> None:
    """As many as were lost would otherwise get their numbers, up to which everything counts as copied."""
    await replicas.revoke("first", "lost")
    async with replicas.one.engine.begin() as connection:
        await connection.execute(text("DELETE FROM revocations WHERE id = 'lost'"))
        behind = text("UPDATE revocation_counts SET number = 1, server = 'the former primary' WHERE tenant_id = :t")
        await connection.execute(behind, {"t": replicas.tenant_id})
    await replicas.revoke("later")

    assert [await replicas.other.revocations.is_revoked(each, "kid") for each in ("first", "lost", "later")] == [
        True
    ] * 3


async def test_a_restored_database_with_an_emptied_redis_continues_from_the_last_position_read(
    replicas: Replicas,
) -> None:
    """A replica refuses copies behind its last position: with a restarted count it would refuse all for a long time."""
    await replicas.revoke("first", "second")
    assert await replicas.other.revocations.is_revoked("first", "kid")
    async with replicas.one.engine.begin() as connection:
        for table in ("revocations", "revocation_counts"):
            await connection.execute(text(f"DELETE FROM {table} WHERE tenant_id = :t"), {"t": replicas.tenant_id})
    await replicas.replace_copy({})
    await replicas.revoke("third", stores=replicas.other)

    assert await replicas.other.revocations.is_revoked("third", "kid")
    assert await replicas.position() == CopyPosition(3, True)


async def test_a_revocation_expires_with_its_token(replicas: Replicas) -> None:
    await replicas.one.revocations.revoke(Revocation("brief", now_ms() + 60_000), Revocation("over", now_ms() - 1))
    assert await replicas.other.revocations.is_revoked("brief", "kid")
    assert not await replicas.other.revocations.is_revoked("over", "kid")
    brief, over = [
        await replicas.administrator.pttl(revocation_key(replicas.tenant_id, each)) for each in ("brief", "over")
    ]
    assert 0 < brief <= 60_000
    assert over == -2, "the key does not exist"


async def test_expired_revocations_are_deleted_in_their_own_tenant_only(replicas: Replicas) -> None:
    """Tenants share the table; a live revocation is never deleted."""
    now, neighbour = now_ms(), f"t{secrets.token_hex(6)}"
    both = [replicas.tenant_id, neighbour]
    async with replicas.one.engine.begin() as connection:
        for tenant_id in both:
            revoked = [Revocation("live", now + SOON), Revocation("over", now)]
            await insert_revocations(connection, tenant_id, revoked)
        await delete_expired_revocations(connection, replicas.tenant_id, now=now)

    async with replicas.one.engine.connect() as connection:
        kept = text("SELECT tenant_id, id FROM revocations WHERE tenant_id = ANY(:tenants)")
        rows = {(row.tenant_id, row.id) for row in await connection.execute(kept, {"tenants": both})}
    assert rows == {(replicas.tenant_id, "live"), (neighbour, "live"), (neighbour, "over")}


@pytest.mark.heavy
async def test_a_revocation_on_too_few_replicas_of_redis_is_a_failure(
    stack: RunningStack, servers: ServerAddresses
) -> None:
    """A revocation must be on every possible failover target; a retry is idempotent."""
    async with opened(
        database_url=servers.token_database_url,
        redis_url=servers.token_redis_url,
        tenant_id=f"t{secrets.token_hex(6)}",
        redis_replicas=1,
    ) as stores:
        with pytest.raises(StoreUnavailable, match="too few replicas") as refused:
            await stores.revocations.revoke(Revocation("x", now_ms() + SOON))
    assert refused.value.why == "revocations cannot be copied right now"


async def test_a_lookup_that_is_overtaken_by_a_later_one_is_answered(
    replicas: Replicas, servers: ServerAddresses
) -> None:
    """Two exchanges with Redis may be under way; the later one may be answered first, and from a newer copy."""
    await replicas.revoke(new_token_id())
    pool = ConnectionPool.from_url(servers.management_redis_url, connection_class=HoldingReplies)
    redis: Redis = Redis.from_pool(pool)  # type: ignore[type-arg]
    reader = RevocationReader(RedisCommands(redis), tenant_id=replicas.tenant_id)
    try:
        assert not await reader.is_revoked(new_token_id(), "a key")
        HoldingReplies.next_until = released = asyncio.Event()
        overtaken = asyncio.create_task(reader.is_revoked(new_token_id(), "a key"))
        await eventually_here(lambda: HoldingReplies.next_until is None)
        revoked = new_token_id()
        await replicas.revoke(revoked)
        assert await reader.is_revoked(revoked, "a key")
        released.set()
        assert not await overtaken
    finally:
        await redis.aclose()
        await pool.disconnect()
