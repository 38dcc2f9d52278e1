"""Writes ends to the revocations in Redis, which every take of a subject token and every check of a token reads."""

from typing import Final

from redis.asyncio import Redis

from identity_common.clock import Clock, now_ms
from identity_common.stores.redis import execute_on_replicas
from identity_common.wire.impersonations import ImpersonationEnd
from identity_common.wire.revocations import LUA_REVOKE, revocation_key, revocation_value

# KEYS[1]: the revocation. ARGV: its value, its TTL in milliseconds. The position of the copy stays: it counts the rows
# of token-service, which stores this end when it has the event.
_REVOKE: Final = LUA_REVOKE + "revoke(KEYS[1], ARGV[1], ARGV[2])"


class EndRevocations:
    """The revocations that are ends of impersonations.

    Args:
        redis: Connections for commands with ``WAIT``.
        tenant_id: The tenant.
        replicas: How many replicas of Redis must acknowledge an end before the answer.
        clock: Clock, for tests.
    """

    def __init__(self, redis: "Redis", *, tenant_id: str, replicas: int, clock: Clock = now_ms) -> None:
        self._redis = redis
        self._tenant_id = tenant_id
        self._replicas = replicas
        self._clock = clock

    async def write(self, end: ImpersonationEnd) -> None:
        """Write an end that is committed; once this returns, every take of a subject token that it covers is refused.

        Raises:
            StoreUnavailable: The end is recorded, and token-service will learn of it, but it may be late.
        """
        key = revocation_key(self._tenant_id, end.id)
        kept = (revocation_value(end.begun_until), max(1, end.expires_at - self._clock()))
        await execute_on_replicas(self._redis, "EVAL", _REVOKE, 1, key, *kept, replicas=self._replicas)
