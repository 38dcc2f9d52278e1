"""Refusals of clients that do not authenticate: an entry for the first of a window, and one with the number of others.

Any caller can send requests with the id of a public client. With an entry for each it could fill the trail, and the
entries of others would be dropped. What is counted is in Redis, so it outlives every replica.
"""

import hashlib
from typing import Final

from identity_common.addresses import network_of
from identity_common.background import BackgroundLoop
from identity_common.clock import Clock
from identity_common.failures import StoreUnavailable
from identity_common.identifiers import new_id
from identity_common.stores.audit_streams import LUA_APPEND, LUA_WAITING, AuditStream, AuditStreamKeys, encode_entry
from identity_common.stores.redis import RedisCommands, Script
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry

_log = get_logger(__name__)

_WINDOW_MS: Final = 900_000
_MOST_WINDOWS: Final = 16
"""Open windows of one address. Further refusals share a window, so the memory for an address is bounded."""
_MOST_WITH_USERS: Final = 256
"""Open windows of one address for refusals that name a user: they take a code or a token of that user."""
_CLOSED_AT_ONCE: Final = 100
_PAUSE_S: Final = 1.0

# KEYS: the stream and its numbering; the open windows, by their ends; the refusals counted in them, and the number of
# windows of each network. ARGV: number of entries at which one is dropped, end of a new window, the network, how many
# windows it may have, the window, id of the entry, the entry, and that for the window that further refusals share.
# Returns how many entries were dropped. Open windows count as entries: each becomes one.
_COUNT: Final = Script(
    LUA_APPEND
    + LUA_WAITING
    + """
local window, entry = ARGV[3] .. ':' .. ARGV[5], ARGV[7]
local is_open = redis.call('ZSCORE', KEYS[3], window)
if not is_open and tonumber(redis.call('HGET', KEYS[4], ARGV[3]) or '0') >= tonumber(ARGV[4]) then
    window, entry = ARGV[3] .. ':others', ARGV[8]
    is_open = redis.call('ZSCORE', KEYS[3], window)
end
if is_open then
    redis.call('HINCRBY', KEYS[4], window, 1)
    redis.call('HSET', KEYS[4], window .. ':last', entry)
    return 0
end
if waiting(KEYS[1], KEYS[2]) + redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[1]) then
    append(KEYS[1], KEYS[2], ARGV[6], {}, 1)
    return 1
end
redis.call('ZADD', KEYS[3], ARGV[2], window)
redis.call('HINCRBY', KEYS[4], ARGV[3], 1)
append(KEYS[1], KEYS[2], ARGV[6], {entry})
return 0
"""
)
# KEYS: as above. ARGV: number of entries at which windows stay open, now, how many to close at most, an id. Returns how
# many were closed. The entry of a window is appended in the step that forgets it: a crash leaves exactly one.
_CLOSE: Final = (
    LUA_APPEND
    + LUA_WAITING
    + """
if waiting(KEYS[1], KEYS[2]) >= tonumber(ARGV[1]) then return 0 end
local ended = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
local entries = {}
for _, window in ipairs(ended) do
    local count, entry = unpack(redis.call('HMGET', KEYS[4], window, window .. ':last'))
    if count then entries[#entries + 1] = '"count":' .. count .. ',' .. entry end
    redis.call('HDEL', KEYS[4], window, window .. ':last')
    redis.call('ZREM', KEYS[3], window)
    local network = string.match(window, '^[^:]*')
    if redis.call('HINCRBY', KEYS[4], network, -1) <= 0 then redis.call('HDEL', KEYS[4], network) end
end
if #entries > 0 then append(KEYS[1], KEYS[2], ARGV[4], entries) end
return #ended
"""
)


class RefusalWindows:
    """Counts refusals by address, client, and what was refused.

    Args:
        commands: Runs the Redis commands.
        stream: The log.
        keys: Of the log.
        backlog: Number of entries at which the log is full; half of it is for entries that may be lost.
        clock: The clock; for tests.
    """

    def __init__(
        self,
        commands: RedisCommands,
        stream: AuditStream,
        keys: AuditStreamKeys,
        *,
        backlog: int,
        clock: Clock,
    ) -> None:
        self._commands = commands
        self._stream = stream
        self._keys = (*keys, f"{keys.stream}:windows", f"{keys.stream}:counted")
        self._half = backlog // 2
        self._clock = clock
        self.loop = BackgroundLoop(
            self.close_ended,
            name="audit-refusal-windows",
            pause_s=_PAUSE_S,
            log=_log,
            failed="audit.refusals-failed",
            interrupted="audit.refusals-interrupted",
            expected=(StoreUnavailable,),
        )

    def append(self, entry: AuditEntry, *, in_common: AuditEntry) -> None:
        """Append the entry of a refusal if it is the first of its window, and count it otherwise.

        Args:
            entry: The refusal, without its number.
            in_common: What the entry is replaced by if its address has too many windows.
        """
        users = (entry.user_id or "", entry.actor_id or "")
        organization_id = (entry.organization_id or "") if any(users) else ""
        window = "\n".join((entry.application_id or "", entry.key, entry.reason or "", *users, organization_id))
        self._stream.send(
            1,
            *(_COUNT, self._keys),
            *(self._half, self._clock() + _WINDOW_MS),
            *(_digest(network_of(entry.address)), _MOST_WITH_USERS if any(users) else _MOST_WINDOWS),
            *(_digest(window), entry.id, encode_entry(entry), encode_entry(in_common)),
        )

    async def close_ended(self) -> None:
        """Append the entries of the windows that have ended.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        closed = _CLOSED_AT_ONCE
        while closed == _CLOSED_AT_ONCE:
            numbers = (self._half, self._clock(), _CLOSED_AT_ONCE)
            closed = await self._commands.execute("EVAL", _CLOSE, len(self._keys), *self._keys, *numbers, new_id())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
