"""Connections to Redis that were closed while nothing used them."""

import asyncio

import pytest

from identity_common.stores.redis import RedisCommands, connect_redis
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
