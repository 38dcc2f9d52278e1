"""What one address may do before a sign-in."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter

from identity_common.identifiers import new_id
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.stores.source_limit import SourceLimit
from provision import ServerAddresses

pytestmark = pytest.mark.servers


async def test_one_attempt_of_a_window_is_the_first_beyond_the_limit(servers: ServerAddresses) -> None:
    """That one alone is recorded in the audit trail, however many follow."""
    redis = connect_redis(servers.token_redis_url)
    counter = Counter("throttled", "-", ["limit"], registry=CollectorRegistry())
    limit = SourceLimit(RedisCommands(redis), "sign-in", tenant_id=new_id(), window_s=60, limit=2, throttled=counter)
    counted = await asyncio.gather(*(limit.count("192.0.2.1") for _ in range(12)))
    throttled = [each for each in counted if each is not None]
    assert sorted(each.is_first for each in throttled) == [False] * 9 + [True]
    assert all(1 <= each.wait_s <= 60 for each in throttled)
    assert await limit.count("192.0.2.2") is None
    assert await limit.count("192.0.2.2", weight=2) is not None, "there is room for one more"
    await limit.forgive("192.0.2.2", weight=5)
    assert await limit.count("192.0.2.2", weight=2) is None
    await limit.forgive("192.0.2.1")
    assert await limit.count("192.0.2.1") is None
    again = await limit.count("192.0.2.1")
    assert again is not None
    assert not again.is_first
    await redis.aclose()
