"""``python -m token_service restored``: what it ends, what it keeps, and when it refuses."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.restoration import StillRunningError
from identity_common.stores.audit_streams import AuditStream, AuditStreamKeys
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.audit import AuditEntry, AuditLog
from tests.support.running_stack import RunningStack
from token_service.restoration import restore

pytestmark = pytest.mark.servers

STREAMS: tuple[AuditLog, ...] = ("exchanges", "subject-tokens")


@pytest.fixture
async def engine(stack: RunningStack) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(stack.addresses.token_database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def redis(stack: RunningStack) -> AsyncIterator[Redis]:
    redis = connect_redis(stack.addresses.token_redis_url)
    yield redis
    await redis.aclose()


async def keys_of(redis: Redis, tenant_id: str) -> set[str]:
    return {key.decode() async for key in redis.scan_iter(f"identity:{tenant_id}:*", count=1000)}


async def test_redis_is_emptied_of_all_but_what_waits_for_the_audit_trail(engine: AsyncEngine, redis: Redis) -> None:
    tenant_id = f"t{new_id()}"
    logs = [AuditStreamKeys.of(log, tenant_id) for log in STREAMS]
    for log, keys in zip(STREAMS, logs, strict=True):
        stream = AuditStream(RedisCommands(redis), keys, backlog=10)
        stream.append(AuditEntry(id=new_id(), occurred_at=now_ms(), tenant_id=tenant_id, log=log, key="happened"))
        await stream.flush()
    for number in range(1500):
        await redis.set(f"identity:{tenant_id}:session:{number}", "")

    await restore(engine, redis, tenant_id=tenant_id)

    assert await keys_of(redis, tenant_id) == {key for keys in logs for key in keys}
    assert [await redis.xlen(keys.stream) for keys in logs] == [1, 1]


async def test_it_refuses_while_a_replica_runs_and_changes_nothing(
    stack: RunningStack, engine: AsyncEngine, redis: Redis
) -> None:
    mark = f"identity:{stack.tenant_id}:session:{new_id()}"
    await redis.set(mark, "", ex=60)
    with pytest.raises(StillRunningError):
        await restore(engine, redis, tenant_id=stack.tenant_id)
    assert await redis.exists(mark)
