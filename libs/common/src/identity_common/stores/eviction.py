"""Warns when Redis may evict keys under memory pressure: sessions, revocations and users would vanish silently.

It warns and does not refuse to start, because the policy can change at any time.
"""

from typing import TYPE_CHECKING, Final

from redis.exceptions import RedisError

from identity_common.background import BackgroundLoop
from identity_common.telemetry.logs import get_logger

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = get_logger(__name__)

_PAUSE_S: Final = 60.0
_REQUIRED: Final = "noeviction"


class EvictionWatch:
    """Checks ``maxmemory-policy`` once a minute, and logs a policy that evicts when it is first seen.

    Args:
        redis: Of a user who may run ``INFO``; without that right, and without Redis, nothing is logged.
    """

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._policy = _REQUIRED
        self.loop = BackgroundLoop(
            self.check, name="eviction-watch", pause_s=_PAUSE_S, log=_log, failed="redis.policy-unreadable"
        )

    async def check(self) -> None:
        """Check once."""
        try:
            memory = await self._redis.info("memory")
        except (RedisError, OSError):
            return
        policy = str(memory.get("maxmemory_policy", _REQUIRED))
        if policy not in {self._policy, _REQUIRED}:
            _log.warning(
                "redis.may-evict",
                store="redis",
                variable="maxmemory-policy",
                reason=policy,
                message=f"Redis may drop keys that must stay: set maxmemory-policy to {_REQUIRED}",
            )
        self._policy = policy
