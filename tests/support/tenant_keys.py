"""A tenant's keys in Redis, read and replaced atomically, as by a failover or a flush.

Listing the keys first and deleting them afterwards is not equivalent: a write in between can leave a position that
vouches for deleted records.
"""

from collections.abc import Mapping
from typing import Any, Final

from redis.asyncio import Redis

_READ: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
    if redis.call('TYPE', key).ok == 'string' then
        found[#found + 1] = key
        found[#found + 1] = redis.call('GET', key)
    end
end
return found
"""

_REPLACE: Final = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
for i = 2, #ARGV, 2 do redis.call('SET', ARGV[i], ARGV[i + 1]) end
"""


async def read_keys(administrator: "Redis", tenant_id: str) -> dict[bytes, bytes]:
    """Return the plain values of a tenant: the content of a Redis replica that lags behind from now on."""
    found: list[bytes] = await _eval(administrator, _READ, _pattern(tenant_id))
    return dict(zip(found[::2], found[1::2], strict=True))


async def replace_keys(administrator: "Redis", tenant_id: str, keys: Mapping[bytes, bytes] | None = None) -> None:
    """Delete every key of a tenant and set these, without an expiry; without values Redis is emptied."""
    pairs = [each for pair in (keys or {}).items() for each in pair]
    await _eval(administrator, _REPLACE, _pattern(tenant_id), *pairs)


async def _eval(administrator: "Redis", script: str, *arguments: str | bytes) -> Any:
    return await administrator.execute_command("EVAL", script, 0, *arguments)  # type: ignore[no-untyped-call]


def _pattern(tenant_id: str) -> str:
    return f"identity:{tenant_id}:*"
