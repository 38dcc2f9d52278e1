"""Connections to Redis that were closed while nothing used them, and scripts that Redis does not know."""

import asyncio

import pytest

from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_id
from identity_common.stores.redis import RedisCommands, Script, connect_redis
from provision import ServerAddresses
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.servers

AT_ONCE = 8


@pytest.mark.parametrize("blocking", [False, True])
async def test_no_command_fails_after_redis_was_away(servers: ServerAddresses, blocking: bool) -> None:
    """Every connection of the pool was closed meanwhile, also those that are used again much later."""
    async with TcpProxy(servers.token_redis_url) as proxy:
        redis = connect_redis(proxy.url, blocking=blocking)
        commands = RedisCommands(redis)

        async def ask_at_once() -> list[object]:
            asked = [redis.ping() for _ in range(AT_ONCE)]
            return [*await asyncio.gather(*asked), await commands.execute("PING")]

        try:
            assert await ask_at_once() == [*[True] * AT_ONCE, b"PONG"]
            await proxy.cut()
            await proxy.mend()
            assert await ask_at_once() == [*[True] * AT_ONCE, b"PONG"]
        finally:
            await redis.aclose()


async def test_a_script_that_redis_does_not_know_runs_once(servers: ServerAddresses) -> None:
    """Beside others of its batch, which keep their own replies, failures included."""
    redis = connect_redis(servers.token_redis_url)
    commands, key = RedisCommands(redis), f"identity:{new_id()}"
    counting = Script(f"return redis.call('INCRBY', KEYS[1], ARGV[1]) -- {key}")
    failing = Script(f"redis.call('INCR', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'a') -- {key}")
    try:
        for _ in range(2):  # unknown, then known
            await redis.delete(key)
            replies = await asyncio.gather(
                commands.run(counting, [key], 1),
                commands.execute("STRLEN", key),
                commands.run(failing, [key]),
                commands.run(counting, [key], 10),
                commands.execute("PING"),
                return_exceptions=True,
            )
            assert isinstance(replies[2], StoreUnavailable)
            assert replies[4] == b"PONG"
            assert await redis.get(key) == b"12"
    finally:
        await redis.delete(key)
        await redis.aclose()
