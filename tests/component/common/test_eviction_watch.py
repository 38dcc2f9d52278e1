"""A Redis that may evict keys is logged."""

import json

import pytest
from redis.asyncio import Redis

from identity_common.stores.eviction import EvictionWatch
from identity_common.stores.redis import connect_redis
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs

pytestmark = pytest.mark.servers


async def test_a_policy_that_evicts_is_logged_once_until_it_changes(servers: ServerAddresses) -> None:
    """Read with the rights of token-service. Nothing is evicted meanwhile: the server has no limit of memory."""
    administrator, redis = Redis.from_url(servers.admin_redis_url), connect_redis(servers.token_redis_url)
    watch, logged = EvictionWatch(redis), []
    try:
        for policy in ("noeviction", "allkeys-lru", "allkeys-lru", "volatile-ttl", "noeviction", "allkeys-lru"):
            await administrator.config_set("maxmemory-policy", policy)
            with captured_logs("tests") as log:
                await watch.check()
            logged.append([json.loads(line)["reason"] for line in log.getvalue().splitlines() if "redis.may" in line])
        assert logged == [[], ["allkeys-lru"], [], ["volatile-ttl"], [], ["allkeys-lru"]]
    finally:
        await administrator.config_set("maxmemory-policy", "noeviction")
        await administrator.aclose()
        await redis.aclose()


async def test_without_the_right_to_ask_nothing_is_logged(servers: ServerAddresses) -> None:
    redis = connect_redis(servers.template_redis_url)
    with captured_logs("tests") as log:
        await EvictionWatch(redis).check()
    assert "redis.may" not in log.getvalue()
    await redis.aclose()
