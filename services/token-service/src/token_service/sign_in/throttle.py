"""Throttles password attempts, counted atomically in Redis, per account and per address.

An attempt is counted before the password is checked, so that concurrent attempts all count, and taken back if the
password was right. Counters expire with their window, so no account stays locked.
"""

import hashlib
from typing import Final

from identity_common.search import identity_key, phone_key
from identity_common.stores.redis import RedisCommands

# KEYS: the counters. ARGV: the window in seconds, then the limit of each. Returns 0 if the attempt is counted, else how
# many seconds to wait.
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
# After a right password: reset the account, take one attempt of the address back.
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
        window_s: Length of a window.
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
        """Count an attempt and return 0; or, at the limit, count nothing and return how many seconds to wait.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        limits = (self._window_s, self._per_account, self._per_address)
        return int(await self._commands.execute("EVAL", _TRY, 2, *self._keys(identifier, address), *limits))

    async def forgive(self, identifier: str, address: str) -> None:
        """Take an attempt back after a right password, and reset the account.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _FORGIVE, 2, *self._keys(identifier, address))

    async def forgive_one(self, identifier: str, address: str) -> None:
        """Take an attempt back whose password was not checked.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _FORGIVE_ONE, 2, *self._keys(identifier, address))

    def _keys(self, identifier: str, address: str) -> tuple[str, str]:
        spelled_one_way = identity_key(phone_key(identifier))  # as the password check normalizes it
        account = hashlib.sha256(spelled_one_way.encode()).hexdigest()
        source = hashlib.sha256(address.encode()).hexdigest()
        prefix = f"identity:{self._tenant_id}:password-attempts"
        return f"{prefix}:account:{account}", f"{prefix}:address:{source}"
