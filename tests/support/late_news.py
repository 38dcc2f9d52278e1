"""A world in which the news is always on its way: token-service hears of every change a while later."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from all_in_one.provision import ServerAddresses
from tests.support.running_stack import RunningStack
from tests.support.tcp_proxy import TcpProxy
from tests.support.world import World

_LATE_S = 0.2


@asynccontextmanager
async def world_of_late_news(servers: ServerAddresses, directory: Path, **token_settings: Any) -> AsyncIterator[World]:
    """Start a world with a tenant of its own; how long token-service waits for news is for the test to say."""
    async with TcpProxy(servers.token_nats_url, delay_s=_LATE_S) as wire:
        stack = RunningStack(
            msgspec.structs.replace(servers, token_nats_url=wire.url),
            directory,
            tenant_id=f"late-{secrets.token_hex(4)}",
            **token_settings,
        )
        await asyncio.to_thread(stack.start)
        world = await asyncio.to_thread(World, stack)
        yield world
        world.close()
        await asyncio.to_thread(stack.stop)
