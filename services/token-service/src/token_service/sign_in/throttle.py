"""How often somebody may try a password: counted atomically in Redis, per account and per address.

An attempt is counted before the password is checked, so that a thousand at once are a thousand. One that was right is
taken back. Nobody is locked out for good: the count ends with its window.
"""

import hashlib
from typing import Final

from identity_common.search import identity_key, phone_key
from identity_common.stores.redis import RedisCommands

# KEYS: the counters. ARGV: the window in seconds, then the limit of each. Answers 0 when the attempt is counted, else
# after how many seconds another one makes sense.
_TRY: Final = """
local wait = 0
for i, key in ipairs(KEYS) do
    if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[i + 1]) then
        wait = math.max(wait, redis.call('TTL', key), 1)
    end
end
if wait > 0 then return wait end
for _, key in ipairs(KEYS) do
    if redis.call('INCR', key) == 1 then redis.call('EXPIRE', key, ARGV[1]) end
end
return 0
"""
# A right password: the account starts anew, the address gets its attempt back.
_FORGIVE: Final = """
redis.call('DEL', KEYS[1])
if tonumber(redis.call('GET', KEYS[2]) or '0') > 0 then redis.call('DECR', KEYS[2]) end
return 0
"""
_FORGIVE_ONE: Final = """
for _, key in ipairs(KEYS) do
    if tonumber(redis.call('GET', key) or '0') > 0 then redis.call('DECR', key) end
end
return 0
"""


class PasswordThrottle:
    """Counts attempts.

    Args:
        window_s: How long an attempt counts.
        per_account: Attempts for one name in a window.
        per_address: Attempts from one address in a window; many people may share one.
    """

    def __init__(
        self, commands: RedisCommands, *, tenant_id: str, window_s: int, per_account: int, per_address: int
    ) -> None:
        self._commands = commands
        self._tenant_id = tenant_id
        self._window_s = window_s
        self._per_account = per_account
        self._per_address = per_address

    async def count(self, identifier: str, address: str) -> int:
        """Count an attempt; return 0, or after how many seconds another one makes sense, and then count nothing.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        limits = (self._window_s, self._per_account, self._per_address)
        return int(await self._commands.execute("EVAL", _TRY, 2, *self._keys(identifier, address), *limits))

    async def forgive(self, identifier: str, address: str) -> None:
        """Take an attempt back: the password was right.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _FORGIVE, 2, *self._keys(identifier, address))

    async def forgive_one(self, identifier: str, address: str) -> None:
        """Take an attempt back that nobody has judged.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _FORGIVE_ONE, 2, *self._keys(identifier, address))

    def _keys(self, identifier: str, address: str) -> tuple[str, str]:
        spelled_one_way = identity_key(phone_key(identifier))  # as whoever checks the password reads it
        account = hashlib.sha256(spelled_one_way.encode()).hexdigest()
        source = hashlib.sha256(address.encode()).hexdigest()
        prefix = f"identity:{self._tenant_id}:password-attempts"
        return f"{prefix}:account:{account}", f"{prefix}:address:{source}"
