"""The list of failed calls of the custom-claims function, as every replica reads it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from identity_common.identifiers import new_id
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.claims_function import Failure
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from token_service.claims_function.failures import FailedCalls
from token_service.claims_function.sandbox import Problem

pytestmark = pytest.mark.servers

KIND: Final = "client-credentials"


@pytest_asyncio.fixture
async def redis(servers: ServerAddresses) -> AsyncIterator[Redis]:
    redis = connect_redis(servers.token_redis_url)
    yield redis
    await redis.aclose()


async def test_an_entry_of_a_later_version_or_a_damaged_one_does_not_hide_the_others(redis: Redis) -> None:
    """During an upgrade replicas of two versions share the list."""
    tenant_id = f"t{new_id()}"
    commands = RedisCommands(redis)
    calls = FailedCalls(commands, tenant_id=tenant_id, clock=lambda: 1_764_547_200_000)
    calls.add(Problem("exception", "no"), kind=KIND, version=3, client_id="app")
    place = f"identity:{tenant_id}:claims-function:{KIND}:failures"
    await redis.set(f"{place}:50", b'{"at":1,"version":4,"reason":"a later reason"}', px=60_000)
    await redis.set(f"{place}:51", b"damaged", px=60_000)
    with captured_logs("token-service") as log:
        last = await calls.last(KIND)
    assert last == [Failure(at=1_764_547_200_000, version=3, reason="exception")]
    (line,) = (json.loads(line) for line in log.getvalue().splitlines())
    assert (line["event"], line["kind"], line["count"]) == ("claims-function.failures-unreadable", KIND, 2)
