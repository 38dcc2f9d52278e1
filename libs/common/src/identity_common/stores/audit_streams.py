"""The logs of the audit trail that are streams in Redis: numbered, capped, and appended to by scripts.

Redis may lose data. A missing number shows the loss of entries; a Redis that lost its numbering as well begins at 1
again in another epoch, whose name is the id of its first entry.
"""

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import Argument, RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry, AuditLog
from identity_common.wire.audit_entries import entry_json

_log = get_logger(__name__)

LUA_APPEND: Final = """
local function append(stream, numbering, id, entries, missing)
    local epoch = redis.call('HGET', numbering, 'epoch')
    if not epoch then
        epoch = id
        redis.call('HSET', numbering, 'epoch', epoch)
    end
    local before = redis.call('HINCRBY', numbering, 'last', #entries + (missing or 0)) - #entries
    for number, entry in ipairs(entries) do
        local numbered = string.format('{"epoch":"%s","sequence":%.0f,', epoch, before + number)
        redis.call('XADD', stream, '*', 'entry', numbered .. entry)
    end
end
"""
"""A function for scripts: ``append(stream, numbering, id of the first entry, {entries}, missing)``.

Entries come from ``encode_entry``. ``missing`` is how many numbers to skip before them, which the trail shows as a gap;
0 by default.
"""

# KEYS: the stream, its numbering. ARGV: the id of the first entry, how many entries were lost before it, then for each
# entry the length of the stream at which it is dropped, and the entry. Returns how many were dropped.
_APPEND_BELOW: Final = (
    LUA_APPEND
    + """
local length, kept = redis.call('XLEN', KEYS[1]), {}
for limit = 3, #ARGV, 2 do
    if length + #kept < tonumber(ARGV[limit]) then kept[#kept + 1] = ARGV[limit + 1] end
end
local dropped = (#ARGV - 2) / 2 - #kept
append(KEYS[1], KEYS[2], ARGV[1], kept, dropped + ARGV[2])
return dropped
"""
)
_NO_LIMIT: Final = 2**53
_GATHERING_S: Final = 0.02


def encode_entry(entry: AuditEntry) -> bytes:
    """Return the JSON of an entry without its opening brace: the script prepends that, the epoch and the number."""
    return entry_json(entry)[1:]


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
        stream = f"{cls.prefix(tenant_id)}{log}"
        return cls(stream, f"{stream}:numbering")

    @staticmethod
    def prefix(tenant_id: str) -> str:
        """Return the prefix of the keys of all logs, which no other key has."""
        return f"identity:{tenant_id}:audit:"


class AuditStream:
    """Appends entries without waiting for Redis, many in one command.

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
        self._waiting: list[Argument] = []
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._unanswered: set[asyncio.Future[Any]] = set()

    def append(self, entry: AuditEntry, *, is_outcome: bool = False) -> None:
        """Append an entry. If Redis does not answer, it is lost; the loss is logged and leaves a gap in the numbers.

        Args:
            entry: Without its number.
            is_outcome: Whether it is the outcome of a recorded attempt. Then it is appended even to a full log, within
                20 ms: if the process dies first, the outcome of the attempt is reported as unknown. Other entries are
                sent at the end of the tick of the event loop, together with the waiting outcomes.
        """
        if not self._waiting:
            self._first_id = entry.id
        self._waiting += (_NO_LIMIT if is_outcome else self._half, encode_entry(entry))
        loop = asyncio.get_running_loop()
        if not is_outcome and not self._is_due:
            self._is_due = True
            loop.call_soon(self._send)
        elif is_outcome and self._timer is None:
            self._timer = loop.call_later(_GATHERING_S, self._send)

    async def flush(self) -> None:
        """Append the waiting entries; return when Redis has answered every command, or the command has failed."""
        self._send()
        if self._unanswered:
            await asyncio.wait(self._unanswered)

    def _send(self) -> None:
        if not self._waiting:  # they were sent together with others
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_due = None, False
        entries, self._waiting = self._waiting, []
        lost, self._lost = self._lost, 0
        count = lost + len(entries) // 2
        self.send(count, "EVAL", _APPEND_BELOW, 2, *self._keys, self._first_id, lost, *entries)

    def send(self, count: int, *command: Argument) -> None:
        """Send a command of a script that appends entries of its own; ``flush`` waits for the reply.

        Args:
            count: How many entries are lost if Redis does not answer.
            command: Returns how many entries it dropped because the log is half full.
        """
        appended = self._commands.execute(*command)
        appended.add_done_callback(partial(self._note_losses, count))
        appended.add_done_callback(self._unanswered.discard)
        self._unanswered.add(appended)

    def _note_losses(self, count: int, appended: "asyncio.Future[Any]") -> None:
        if appended.cancelled():
            return
        error = appended.exception()
        if isinstance(error, StoreUnavailable):
            self._lost += count  # if Redis did append them, the gap is too long
            _log.warning("audit.entry-lost", store="redis", error=str(error), count=count)
        elif error is None and appended.result():
            _log.warning("audit.entry-lost", store="redis", reason="the backlog is half full", count=appended.result())
