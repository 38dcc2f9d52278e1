"""Throttles password attempts per address, counted atomically in Redis; management-service counts per account.

An attempt is counted before the password is checked, so that concurrent attempts all count, and taken back if the
password was right. Counters expire with their window, so no address stays locked.
"""

import hashlib
from typing import Final

from identity_common.stores.redis import RedisCommands
from token_service.sign_in.client_address import network_of

# KEYS: the counter. ARGV: the window in seconds, the limit. Returns 0 if the attempt is counted, else how many seconds
# to wait.
_TRY: Final = """
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[2]) then
    return math.max(redis.call('TTL', KEYS[1]), 1)
end
if redis.call('INCR', KEYS[1]) == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return 0
"""
_FORGIVE: Final = """
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then redis.call('DECR', KEYS[1]) end
return 0
"""


class PasswordThrottle:
    """Counts attempts.

    Args:
        window_s: Length of a window.
        per_address: Attempts from one address in a window; many people may share one.
    """

    def __init__(self, commands: RedisCommands, *, tenant_id: str, window_s: int, per_address: int) -> None:
        self._commands = commands
        self._tenant_id = tenant_id
        self._window_s = window_s
        self._per_address = per_address

    async def count(self, address: str) -> int:
        """Count an attempt and return 0; or, at the limit, count nothing and return how many seconds to wait.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        key = self._key(address)
        return int(await self._commands.execute("EVAL", _TRY, 1, key, self._window_s, self._per_address))

    async def forgive(self, address: str) -> None:
        """Take back an attempt whose password was right, or was not checked.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _FORGIVE, 1, self._key(address))

    def _key(self, address: str) -> str:
        source = hashlib.sha256(network_of(address).encode()).hexdigest()
        return f"identity:{self._tenant_id}:password-attempts:address:{source}"
