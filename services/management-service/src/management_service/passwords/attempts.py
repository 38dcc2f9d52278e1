"""Counts attempts at passwords and codes per account, in Redis: one count for unknown browsers, one for each known one.

An account is one hash, whose fields are its counts; it expires with its window, so no account stays locked. Its key
contains tokensValidAfter: a new password starts with new counts. Codes have a hash of their own, with a longer window:
they have six digits. It outlives passwords, since a reader of the user's mail can set one after the other; only the
single counts begin anew, so that attempts with an earlier password lock no one out.
"""

import hashlib
from typing import Final

from identity_common.search import identity_key
from identity_common.stores.redis import RedisCommands
from identity_common.wire.known_devices import KnownDevice
from management_service.passwords.store import PasswordHash
from management_service.phone_numbers import phone_key

ELSEWHERE: Final = "elsewhere"
"""The count of all browsers that the account does not know."""
MY_ACCOUNT: Final = "my-account"
"""The count of attempts by a person who is signed in: theirs lock no sign-in, and a stranger's do not lock them."""

CODE_WINDOW_S: Final = 6 * 60 * 60
"""Length of the window for codes of authenticator apps: with ten attempts in each, who has the password and tries for a
year finds a valid one with a probability of 4 %."""
CODES_TOGETHER: Final = 5
"""How many times its limit all counts of an account at codes may be together: who had the password before there was a
second factor may have made any number of browsers known, and who reads the user's mail can set any number of
passwords."""

_CODES: Final = ":codes"

# KEYS: the account. ARGV: the count, its limit, the window in seconds, the limit of all counts together or 0. Returns 0
# if the attempt is counted, else how many seconds to wait.
_COUNT: Final = """
local function is_full(count, limit)
    return tonumber(redis.call('HGET', KEYS[1], count) or '0') >= tonumber(limit)
end
local has_total = tonumber(ARGV[4]) > 0
if is_full(ARGV[1], ARGV[2]) or (has_total and is_full('all', ARGV[4])) then
    return math.max(redis.call('TTL', KEYS[1]), 1)
end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
if has_total then redis.call('HINCRBY', KEYS[1], 'all', 1) end
if redis.call('TTL', KEYS[1]) < 0 then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return 0
"""
_RESET: Final = """
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('HGET', KEYS[1], 'all') then redis.call('HINCRBY', KEYS[1], 'all', -count) end
return 0
"""
# A count of 0 is deleted: each of these attempts may be at another account, and none counts for its address.
_UNCOUNT: Final = """
local count = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if count > 1 then redis.call('HINCRBY', KEYS[1], ARGV[1], -1) else redis.call('HDEL', KEYS[1], ARGV[1]) end
return 0
"""


class SignInAttempts:
    """Counts attempts, and limits them.

    Args:
        window_s: Length of a window.
        limit: Attempts in a window for each count of an account.
    """

    def __init__(self, commands: RedisCommands, *, tenant_id: str, window_s: int, limit: int) -> None:
        self._commands = commands
        self._prefix = f"identity:{tenant_id}:sign-in-attempts"
        self._window_s = window_s
        self._limit = limit

    def account(self, found: PasswordHash | None, identifier: str) -> str:
        """Return the key of an account; an unknown identifier counts as an account, normalized like a known one."""
        if found is not None:
            return self._account_key(found.id, found.tokens_valid_after)
        normalized = identity_key(phone_key(identifier))
        return f"{self._prefix}:unknown:{hashlib.sha256(normalized.encode()).hexdigest()}"

    def codes(self, user_id: str) -> str:
        """Return the key of an account's attempts at codes."""
        return f"{self._prefix}:user:{user_id}{_CODES}"

    async def count(self, account: str, source: str) -> int:
        """Count an attempt and return 0; or, at the limit, count nothing and return how many seconds to wait.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        window_s, together = self._window_s, 0
        if account.endswith(_CODES):
            window_s, together = CODE_WINDOW_S, CODES_TOGETHER * self._limit
        bounds = (self._limit, window_s, together)
        return int(await self._commands.execute("EVAL", _COUNT, 1, account, source, *bounds))

    async def uncount(self, account: str, source: str) -> None:
        """Uncount an attempt whose password was not checked.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _UNCOUNT, 1, account, source)

    async def reset(self, account: str, source: str) -> None:
        """Reset a count after a correct password or code; the account's other counts stay.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        await self._commands.execute("EVAL", _RESET, 1, account, source)

    async def clear(self, user_id: str, *, tokens_valid_after: int) -> None:
        """Reset all counts of a user.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        account = self._account_key(user_id, tokens_valid_after)
        await self._commands.execute("DEL", account, self.codes(user_id))

    def _account_key(self, user_id: str, tokens_valid_after: int) -> str:
        return f"{self._prefix}:user:{user_id}:{tokens_valid_after}"


def source_of(user_id: str, tokens_valid_after: int, devices: tuple[KnownDevice, ...]) -> str:
    """Return which of an account's counts an attempt at a browser belongs to."""
    for device in devices:
        if (device.user_id, device.tokens_valid_after) == (user_id, tokens_valid_after):
            return device.id
    return ELSEWHERE
