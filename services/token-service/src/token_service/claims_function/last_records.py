"""A ring buffer in Redis: the last hundred records, each with its own TTL."""

import asyncio
from typing import Any, Final

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

MOST: Final = 100

# KEYS: the list; the key that no record outlives, if there is one. ARGV: the record, how many are kept, their TTL in
# milliseconds. The list's own value counts all records so far, and so says which place is the oldest.
_ADD: Final = """
local ttl = tonumber(ARGV[3])
if KEYS[2] then
  ttl = math.min(ttl, redis.call('PTTL', KEYS[2]))
  if ttl <= 0 then
    return
  end
end
local place = redis.call('INCR', KEYS[1]) % tonumber(ARGV[2])
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('SET', KEYS[1] .. ':' .. string.format('%d', place), ARGV[1], 'PX', ttl)
"""

# KEYS: the list and its places. ARGV: the longest TTL in milliseconds.
_SHORTEN: Final = """
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) > tonumber(ARGV[1]) then
    redis.call('PEXPIRE', key, ARGV[1])
  end
end
"""


class LastRecords:
    """One list.

    Args:
        commands: Runs the Redis commands.
        key: The list's key, and the prefix of its records' keys.
        within: A key that no record outlives, and without which none is added; None if there is no such key.
    """

    def __init__(self, commands: RedisCommands, key: str, *, within: str | None = None) -> None:
        self._commands = commands
        self._key = key
        self._adds_to = (key,) if within is None else (key, within)
        self._places = [f"{key}:{place}" for place in range(MOST)]

    def add(self, record: bytes, *, ttl_ms: int) -> None:
        """Add a record without waiting for Redis; a lost record is logged."""
        added = self._commands.execute("EVAL", _ADD, len(self._adds_to), *self._adds_to, record, MOST, ttl_ms)
        added.add_done_callback(_log_a_loss)

    async def all(self) -> list[bytes]:
        """Return the records, unordered.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        found = await self._commands.execute("MGET", *self._places)
        return [record for record in found if record is not None]

    async def count(self) -> int:
        """Return the number of the records.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return int(await self._commands.execute("EXISTS", *self._places))

    async def shorten(self, ttl_ms: int) -> None:
        """Reduce every record's TTL to at most ``ttl_ms``.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        keys = (self._key, *self._places)
        await self._commands.execute("EVAL", _SHORTEN, len(keys), *keys, ttl_ms)

    async def clear(self) -> None:
        """Remove the records.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("DEL", self._key, *self._places)


def _log_a_loss(added: "asyncio.Future[Any]") -> None:
    error = None if added.cancelled() else added.exception()
    if isinstance(error, StoreUnavailable):
        _log.warning("store.unavailable", store="redis", error=str(error))
