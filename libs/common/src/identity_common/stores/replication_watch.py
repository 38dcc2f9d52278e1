"""Warns when a primary of Redis accepts writes that a failover would lose.

Subject tokens are safe without this: a take is refused before it spends. Other writes are refused by Redis itself, with
``min-replicas-to-write``, also at a primary that was cut off from the others and does not know of its successor.
"""

from typing import TYPE_CHECKING, Final

from redis.exceptions import RedisError

from identity_common.background import BackgroundLoop
from identity_common.telemetry.logs import get_logger

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = get_logger(__name__)

_PAUSE_S: Final = 60.0


class ReplicationWatch:
    """Checks the replication at the start and once a minute, and logs what is wrong when it is first seen.

    Args:
        redis: Of a user who may run ``INFO``.
        replicas: How many must be online.
    """

    def __init__(self, redis: "Redis", *, replicas: int) -> None:
        self._redis = redis
        self._replicas = replicas
        self._logged = ""
        self.loop = BackgroundLoop(
            self.check, name="replication-watch", pause_s=_PAUSE_S, log=_log, failed="redis.replication-unreadable"
        )

    async def check(self) -> None:
        """Check once."""
        try:
            state = await self._redis.info("replication")
        except (RedisError, OSError):
            return
        online = sum(1 for each in state.values() if isinstance(each, dict) and each.get("state") == "online")
        problem = ""
        if "min_slaves_good_slaves" not in state:  # the server leaves it out if the setting is 0
            problem = "min-replicas-to-write is not set"
        elif online < self._replicas:
            problem = "fewer replicas are online than REDIS_REPLICAS"
        if problem not in {"", self._logged}:
            _log.warning("redis.may-lose-writes", store="redis", reason=problem, count=online)
        self._logged = problem
