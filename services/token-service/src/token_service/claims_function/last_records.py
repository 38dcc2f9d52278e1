"""The last hundred records of a list in Redis, each with its own TTL; a new one replaces the oldest."""

import asyncio
from typing import Any, Final

from identity_common.stores.redis import RedisCommands, StoreUnavailable
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

MOST: Final = 100

# KEYS: the list. ARGV: the record, how many are kept, their TTL in milliseconds. The list's own value counts all
# records so far, and so says which place is the oldest.
_ADD: Final = """
local place = redis.call('INCR', KEYS[1]) % tonumber(ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1] .. ':' .. string.format('%d', place), ARGV[1], 'PX', ARGV[3])
"""


class LastRecords:
    """One list.

    Args:
        commands: To Redis.
        key: Of the list; its records are below it.
    """

    def __init__(self, commands: RedisCommands, key: str) -> None:
        self._commands = commands
        self._key = key
        self._places = [f"{key}:{place}" for place in range(MOST)]

    def add(self, record: bytes, *, ttl_ms: int) -> None:
        """Add a record, without waiting for Redis; if Redis does not answer it is lost, which is logged."""
        self._commands.execute("EVAL", _ADD, 1, self._key, record, MOST, ttl_ms).add_done_callback(_log_a_loss)

    async def all(self) -> list[bytes]:
        """Return the records, in no order.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        found = await self._commands.execute("MGET", *self._places)
        return [record for record in found if record is not None]

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
