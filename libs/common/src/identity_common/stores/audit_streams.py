"""The logs of the audit trail that are streams in Redis: numbered, capped, and appended to by scripts.

Redis may lose what it holds. A number that is missing afterwards shows that, and a Redis that lost its data numbers
from 1 again under another epoch: the id of the first entry.
"""

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from identity_common.stores.redis import Argument, RedisCommands, StoreUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry, AuditLog

_log = get_logger(__name__)

LUA_APPEND: Final = """
local function append(stream, numbering, id, ...)
    local epoch = redis.call('HGET', numbering, 'epoch')
    if not epoch then
        epoch = id
        redis.call('HSET', numbering, 'epoch', epoch)
    end
    local sequence = redis.call('HINCRBY', numbering, 'last', 1)
    redis.call('XADD', stream, '*', 'epoch', epoch, 'sequence', sequence, ...)
end
"""
"""A function for scripts: ``append(stream, numbering, id of the entry, 'entry', its JSON, …)``; further pairs replace
members of the entry, by the names of ``AuditEntry``."""

# KEYS: the stream, its numbering. ARGV, for each entry: at how many entries to drop this one, its id, its JSON. Returns
# how many were dropped.
_APPEND_BELOW: Final = (
    LUA_APPEND
    + """
local dropped = 0
for first = 1, #ARGV, 3 do
    if redis.call('XLEN', KEYS[1]) < tonumber(ARGV[first]) then
        append(KEYS[1], KEYS[2], ARGV[first + 1], 'entry', ARGV[first + 2])
    else
        dropped = dropped + 1
    end
end
return dropped
"""
)
_NO_LIMIT: Final = 2**53
encode_entry: Final = msgspec.json.Encoder().encode


class AuditStreamKeys(NamedTuple):
    """The keys of a log.

    Attributes:
        stream: Entries that are not in the stream of the bus yet.
        numbering: A hash: ``epoch``, ``last`` (number of the last entry), and ``run`` (the Redis that numbered it).
    """

    stream: str
    numbering: str

    @classmethod
    def of(cls, log: AuditLog, tenant_id: str) -> "AuditStreamKeys":
        """Return the keys of a log."""
        stream = f"identity:{tenant_id}:audit:{log}"
        return cls(stream, f"{stream}:numbering")


class AuditStream:
    """Appends entries without waiting for Redis; those of one tick of the event loop in one command.

    Args:
        commands: To Redis.
        keys: Of the log.
        backlog: At how many entries the log is full. What need not be recorded is dropped at half of it, so that it
            never keeps out what must be.
    """

    def __init__(self, commands: RedisCommands, keys: AuditStreamKeys, *, backlog: int) -> None:
        self._commands = commands
        self._keys = keys
        self._half = backlog // 2
        self._waiting: list[Argument] = []

    def append(self, entry: AuditEntry, *, must_fit: bool = False) -> None:
        """Append an entry; if Redis does not answer, it is lost, which is logged.

        Args:
            entry: Without its number.
            must_fit: Whether it is appended to a full log too.
        """
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting += (_NO_LIMIT if must_fit else self._half, entry.id, encode_entry(entry))

    def _send(self) -> None:
        entries, self._waiting = self._waiting, []
        appended = self._commands.execute("EVAL", _APPEND_BELOW, 2, *self._keys, *entries)
        appended.add_done_callback(_log_losses)


def _log_losses(appended: "asyncio.Future[Any]") -> None:
    if appended.cancelled():
        return
    error = appended.exception()
    if isinstance(error, StoreUnavailable):
        _log.warning("audit.entry-lost", store="redis", error=str(error))
    elif error is None and appended.result():
        _log.warning("audit.entry-lost", store="redis", reason="the backlog is half full", count=appended.result())
