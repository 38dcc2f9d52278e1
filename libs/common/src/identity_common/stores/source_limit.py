"""Limits what one source may do in a window, or what may be sent to one; counted in Redis, over all replicas.

Password attempts are counted before the password is checked, so that concurrent attempts all count, and taken back if
the password was right (management-service counts them per account). Authorization requests, and the console's own
sign-ins, are counted before they are stored, and taken back when they are answered. Failed client authentications are
counted after the check. Counters expire with their window, so a source is never locked for longer.
"""

import hashlib
from collections.abc import Awaitable
from typing import Final, Literal, NamedTuple

from prometheus_client import Counter

from identity_common.addresses import network_of
from identity_common.stores.redis import RedisCommands

# KEYS: the counter, a mark that the limit was met. ARGV: the window in seconds, the limit, the weight of the attempt.
# Returns 0 if it is counted, with the attempts left and the seconds until the window ends; otherwise the seconds to
# wait, and whether it is the first refused attempt of the window.
# Not INCRBY, which the user of the console has no permission for; weights are small.
_TRY: Final = """
if tonumber(redis.call('GET', KEYS[1]) or '0') + tonumber(ARGV[3]) > tonumber(ARGV[2]) then
    local wait = math.max(redis.call('TTL', KEYS[1]), 1)
    return {wait, redis.call('SET', KEYS[2], '1', 'NX', 'EX', wait) and 1 or 0}
end
local counted
for _ = 1, tonumber(ARGV[3]) do counted = redis.call('INCR', KEYS[1]) end
if counted == tonumber(ARGV[3]) then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return {0, ARGV[2] - counted, math.max(redis.call('TTL', KEYS[1]), 1)}
"""
_FORGIVE: Final = """
local counted = tonumber(redis.call('GET', KEYS[1]) or '0')
for _ = 1, math.min(counted, tonumber(ARGV[1])) do redis.call('DECR', KEYS[1]) end
return 0
"""


class Throttled(NamedTuple):
    """An attempt refused at the limit.

    Attributes:
        wait_s: Seconds until the next attempt is allowed, at least 1.
        is_first: Whether it is the first refused one of the window, for records made once per window.
    """

    wait_s: int
    is_first: bool


class Room(NamedTuple):
    """An attempt within the limit.

    Attributes:
        remaining: How many further ones the window admits.
        resets_s: Seconds until the window ends, at least 1.
    """

    remaining: int
    resets_s: int


class SourceLimit:
    """Counts one kind of attempt.

    Args:
        commands: Runs the Redis commands.
        kind: Part of the keys.
        by: What a source is, which is part of the keys: an address, whose network is counted, a client, or a recipient.
        window_s: Length of a window in seconds.
        limit: Attempts of one source in a window; many people may share an address.
        throttled: Counts the attempts beyond the limit.
    """

    def __init__(
        self,
        commands: RedisCommands,
        kind: str,
        *,
        tenant_id: str,
        window_s: int,
        limit: int,
        throttled: Counter,
        by: Literal["address", "client", "recipient"] = "address",
    ) -> None:
        self._commands = commands
        self._prefix = f"identity:{tenant_id}:{kind}:{by}"
        self._by = by
        self.window_s = window_s
        self.limit = limit
        self._throttled = throttled.labels(f"{kind}-per-{by}")

    async def count(self, source: str, *, weight: int = 1) -> Throttled | None:
        """Count an attempt; beyond the limit, do not count it and return how long to wait.

        Args:
            source: The address or client that it comes from, or the recipient.
            weight: How many attempts it counts as.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        counted = await self.room(source, weight=weight)
        return counted if isinstance(counted, Throttled) else None

    async def room(self, source: str, *, weight: int = 1) -> Room | Throttled:
        """Count an attempt likewise; within the limit, return how much room is left.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        key = self._key(source)
        keys = (key, f"{key}:throttled")
        bounds = (self.window_s, self.limit, weight)
        wait_s, *rest = await self._commands.execute("EVAL", _TRY, len(keys), *keys, *bounds)
        if not wait_s:
            return Room(*rest)
        self._throttled.inc()
        return Throttled(wait_s, bool(rest[0]))

    def refused_again(self) -> None:
        """Count an attempt in the metric whose source is known to be beyond the limit."""
        self._throttled.inc()

    def forgive(self, source: str, *, weight: int = 1) -> Awaitable[object]:
        """Take an attempt of this weight back; sent at once, so that it need not be awaited.

        Raises:
            StoreUnavailable: When it is awaited: Redis does not answer.
        """
        return self._commands.execute("EVAL", _FORGIVE, 1, self._key(source), weight)

    def _key(self, source: str) -> str:
        counted = network_of(source) if self._by == "address" else source
        return f"{self._prefix}:{hashlib.sha256(counted.encode()).hexdigest()}"
