"""The logs of the audit trail that are streams in Redis: numbered, capped, and appended to by scripts.

A record of a stream has one entry, or a batch of them. Redis may lose data. A missing number shows the loss of entries;
a Redis that lost its numbering as well begins at 1 again in another epoch, whose name is the id of its first entry.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import Argument, RedisCommands, Script
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry, AuditLog
from identity_common.wire.audit_entries import entry_json

_log = get_logger(__name__)

LUA_APPEND: Final = """
local function numbered(numbering, id, count, missing)
    local epoch = redis.call('HGET', numbering, 'epoch')
    if not epoch then
        epoch = id
        redis.call('HSET', numbering, 'epoch', epoch)
    end
    return epoch, redis.call('HINCRBY', numbering, 'last', count + (missing or 0)) - count
end
local function append(stream, numbering, id, entries, missing)
    local epoch, before = numbered(numbering, id, #entries, missing)
    for number, entry in ipairs(entries) do
        local numbers = string.format('{"epoch":"%s","sequence":%.0f,', epoch, before + number)
        redis.call('XADD', stream, '*', 'entry', numbers .. entry)
    end
end
"""
"""A function for scripts: ``append(stream, numbering, id of the first entry, {entries}, missing)``.

Entries come from ``encode_entry``. ``missing`` is how many numbers to skip before them, which the trail shows as a gap;
0 by default.
"""

LUA_WAITING: Final = """
local function waiting(stream, numbering)
    return redis.call('XLEN', stream) + (redis.call('HGET', numbering, 'batched') or 0)
end
"""
"""A function for scripts: ``waiting(stream, numbering)`` returns how many entries wait for the bus."""

COUNT_WAITING: Final = f"{LUA_WAITING}\nreturn waiting(KEYS[1], KEYS[2])"
"""A script that returns the same. KEYS: the stream, its numbering."""

# KEYS: the stream, its numbering. ARGV: the id of the first entry, how many entries were lost before it, number of
# waiting entries at which one is dropped, the entries, one a line, and a character for each: 1 if it is never dropped.
# Returns how many were dropped. While the active relay is not known to read batches, because it is of the previous
# version, each entry gets a record.
_APPEND_BATCH: Final = Script(
    LUA_APPEND
    + LUA_WAITING
    + """
local stream, numbering = unpack(KEYS)
local id, lost, limit, batch, kinds = unpack(ARGV)
local length, count = waiting(stream, numbering), #kinds
local batches_until = redis.call('HGET', numbering, 'batches_until')
local takes_batches = batches_until and tonumber(redis.call('TIME')[1]) < tonumber(batches_until)
local dropped, kept = 0, nil
if length + count > tonumber(limit) or not takes_batches then
    local number = 0
    kept = {}
    for entry in string.gmatch(batch, '[^\\n]+') do
        number = number + 1
        if string.sub(kinds, number, number) == '1' or length + #kept < tonumber(limit) then
            kept[#kept + 1] = entry
        end
    end
    dropped, count = count - #kept, #kept
end
if not takes_batches then
    append(stream, numbering, id, kept, dropped + lost)
    return dropped
end
local epoch, before = numbered(numbering, id, count, dropped + lost)
if count > 0 then
    batch = kept and table.concat(kept, '\\n') or batch
    redis.call('XADD', stream, '*', 'epoch', epoch, 'first', string.format('%.0f', before + 1), 'entries', batch)
    redis.call('HINCRBY', numbering, 'batched', count - 1)
end
return dropped
"""
)
_BATCH_BYTES: Final = 16 << 10
"""Of entries in a batch. An entry is under 16 KiB, so a record is under 32."""
_GATHERING_S: Final = 0.02
_MOST_UNANSWERED: Final = 1024
"""Commands. While Redis does not answer, they take at most 32 MiB."""
_DROPPED: Final = b"0"
_NEVER_DROPPED: Final = b"1"


def encode_entry(entry: AuditEntry) -> bytes:
    """Return the JSON of an entry without its opening brace: the script prepends that, the epoch and the number."""
    return entry_json(entry)[1:]


class AuditStreamKeys(NamedTuple):
    """The keys of a log.

    Attributes:
        stream: Entries that are not in the stream of the bus yet.
        numbering: A hash: ``epoch``, ``last`` (number of the last entry), ``run`` (the Redis that numbered it),
            ``batched`` (how many more entries than records wait), and ``batches_until`` (the time, in seconds, up to
            which the active relay is known to read batches).
    """

    stream: str
    numbering: str

    @classmethod
    def of(cls, log: AuditLog, tenant_id: str) -> "AuditStreamKeys":
        """Return the keys of a log."""
        stream = f"{cls.prefix(tenant_id)}{log}"
        return cls(stream, f"{stream}:numbering")

    @staticmethod
    def prefix(tenant_id: str) -> str:
        """Return the prefix of the keys of all logs, which no other key has."""
        return f"identity:{tenant_id}:audit:"


class AuditStream:
    """Gathers entries and appends them as batches, without waiting for Redis.

    An entry that the process has not sent yet when it dies is lost without a gap: its number is not assigned before.

    Args:
        commands: To Redis.
        keys: Of the log.
        backlog: Number of entries at which the log is full. Entries that may be lost are dropped at half of it, so that
            they never displace those that may not.
    """

    def __init__(self, commands: RedisCommands, keys: AuditStreamKeys, *, backlog: int) -> None:
        self._commands = commands
        self._keys = keys
        self._half = backlog // 2
        self._first_id = ""
        self._gathered: list[bytes] = []
        self._bytes = 0
        self._kinds = bytearray()
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered: set[asyncio.Future[Any]] = set()

    def append(self, entry: AuditEntry, *, is_outcome: bool = False) -> None:
        """Append an entry within 20 ms. If Redis does not answer, it is lost; the loss is logged and leaves a gap.

        Args:
            entry: Without its number.
            is_outcome: Whether it is the outcome of a recorded attempt. Then it is appended even to a full log. If it
                is lost, the outcome of the attempt is reported as unknown.
        """
        if not self._gathered:
            self._first_id = entry.id
            self._timer = asyncio.get_running_loop().call_later(_GATHERING_S, self._send)
        encoded = encode_entry(entry)
        self._gathered.append(encoded)
        self._kinds += _NEVER_DROPPED if is_outcome else _DROPPED
        self._bytes += len(encoded)
        if self._bytes >= _BATCH_BYTES:
            self._send()

    async def flush(self) -> None:
        """Append the gathered entries; return when Redis has answered every command, or the command has failed."""
        self._send()
        if self._unanswered:
            await asyncio.wait(self._unanswered)

    def _send(self) -> None:
        if self._timer is None:  # nothing is gathered
            return
        self._timer.cancel()
        entries, kinds, self._timer = self._gathered, bytes(self._kinds), None
        self._gathered, self._bytes, self._kinds = [], 0, bytearray()
        lost, self._lost = self._lost, 0
        arguments = (self._first_id, lost, self._half, b"\n".join(entries), kinds)
        self.send(lost + len(entries), _APPEND_BATCH, self._keys, *arguments)

    def send(self, count: int, script: Script, keys: Sequence[str], *arguments: Argument) -> None:
        """Run a script that appends entries of its own; ``flush`` waits for the reply.

        Args:
            count: How many entries are lost if Redis does not answer.
            script: Returns how many entries it dropped because the log is half full.
            keys: Its keys.
            arguments: Its arguments.
        """
        if len(self._unanswered) >= _MOST_UNANSWERED:
            self._note_lost(count, "too many commands wait for an answer")
            return
        appended = self._commands.run(script, keys, *arguments)
        appended.add_done_callback(partial(self._note_losses, count))
        appended.add_done_callback(self._unanswered.discard)
        self._unanswered.add(appended)

    def _note_losses(self, count: int, appended: "asyncio.Future[Any]") -> None:
        if appended.cancelled():
            return
        error = appended.exception()
        if isinstance(error, StoreUnavailable):
            self._note_lost(count, str(error))
        elif error is None and appended.result():
            _log.warning("audit.entry-lost", store="redis", reason="the backlog is half full", count=appended.result())

    def _note_lost(self, count: int, reason: str) -> None:
        self._lost += count  # if Redis did append them, the gap is too long
        _log.warning("audit.entry-lost", store="redis", error=reason, count=count)
