"""Failed client authentications are counted by address, and by client at an address; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from identity_common.identifiers import new_id
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.stores.source_limit import SourceLimit
from provision import ServerAddresses
from token_service.grants.failed_authentications import FailedAuthentications
from token_service.grants.oauth_errors import OAuthError
from token_service.metrics import TokenServiceMetrics

pytestmark = pytest.mark.servers

PER_ADDRESS, PER_CLIENT = 5, 3
WINDOW_S = 60
HERE, ELSEWHERE = "192.0.2.1", "2001:db8:0:7::1"
Replica = Callable[..., FailedAuthentications]


@pytest_asyncio.fixture
async def replica(servers: ServerAddresses) -> AsyncIterator[Replica]:
    """Return a maker of replicas of one tenant."""
    redis, tenant_id = connect_redis(servers.token_redis_url), new_id()
    away = connect_redis("redis://127.0.0.1:9")

    def make(*, window_s: int = WINDOW_S, is_redis_away: bool = False) -> FailedAuthentications:
        commands = RedisCommands(away if is_redis_away else redis)
        throttled = TokenServiceMetrics().throttled
        common = {"tenant_id": tenant_id, "window_s": window_s, "throttled": throttled}
        return FailedAuthentications(
            SourceLimit(commands, "client-failures", limit=PER_ADDRESS, **common),  # type: ignore[arg-type]
            SourceLimit(commands, "client-failures", limit=PER_CLIENT, by="client", **common),  # type: ignore[arg-type]
        )

    yield make
    async for key in redis.scan_iter(f"identity:{tenant_id}:*"):
        await redis.delete(key)
    await redis.aclose()
    await away.aclose()


async def fails(
    failed: FailedAuthentications, client_id: str = "app", address: str = HERE, *, is_known: bool = True
) -> bool:
    """Fail to authenticate; return whether it was one failure too many."""
    try:
        failed.require_room(client_id, address)
        await failed.count(client_id, address, is_known=is_known)
    except OAuthError as refused:
        assert (refused.status, refused.error) == (429, "temporarily_unavailable")
        assert refused.retry_after_s is not None
        assert 1 <= refused.retry_after_s <= WINDOW_S
        return True
    return False


async def test_replicas_count_together_and_exactly(replica: Replica) -> None:
    replicas = [replica(), replica()]
    refused = await asyncio.gather(*(fails(replicas[n % 2]) for n in range(64)))
    assert refused.count(False) == PER_CLIENT


async def test_a_client_is_counted_at_each_address_by_itself(replica: Replica) -> None:
    """A guess at a client's id does not use up the room that the client has at its own address."""
    one = replica()
    assert [await fails(one, "app", HERE) for _ in range(PER_CLIENT + 1)] == [False] * PER_CLIENT + [True]
    assert [await fails(one, "app", ELSEWHERE), await fails(one, "other", HERE)] == [False, False]
    assert await fails(one, "app", "2001:db8:0:7:ffff::2") is False, "the same /64"
    assert await fails(one, "app", "2001:db8:0:8::1") is False, "another /64"


async def test_ids_that_no_client_has_share_the_count_of_the_address(replica: Replica) -> None:
    one, two = replica(), replica()
    refused = [await fails(one, f"invented-{n}", is_known=False) for n in range(PER_ADDRESS + 3)]
    assert refused == [False] * PER_ADDRESS + [True] * 3
    assert [await fails(two, "app"), await fails(two, "app", ELSEWHERE)] == [True, False]


async def test_a_window_ends_at_every_replica(replica: Replica) -> None:
    one, two = replica(window_s=1), replica(window_s=1)
    while not (await fails(one) and await fails(two)):
        pass
    async with asyncio.timeout(30):
        while await fails(one) or await fails(two):  # noqa: ASYNC110 - a key's expiry in Redis, without an event
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("client_id", ["", "\x00", "x" * 50_000, "a b\n", "ü" * 1000])
async def test_an_id_may_be_any_text(replica: Replica, client_id: str) -> None:
    one = replica()
    refused = [await fails(one, client_id) for _ in range(PER_CLIENT + 1)]
    assert refused == [False] * PER_CLIENT + [True]


async def test_without_redis_nothing_is_counted_and_nothing_refused(replica: Replica) -> None:
    away = replica(is_redis_away=True)
    assert [await fails(away) for _ in range(PER_ADDRESS + 1)] == [False] * (PER_ADDRESS + 1)
