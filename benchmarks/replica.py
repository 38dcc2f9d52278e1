"""Start time and memory of a token-service replica with many users in the stream."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import redis

from benchmarks.many_users import ManyUsers
from benchmarks.measure import memory_mb
from provision import ServerAddresses
from tests.support.processes import ServiceProcess

_TARGET_MB: Final = 150.0


async def _publish(database_url: str, users: int) -> None:
    async with ManyUsers(database_url) as many_users:
        await many_users.publish(users)


class Start(msgspec.Struct, frozen=True):
    """One start of a replica.

    Attributes:
        seconds: Until it was ready.
        resident_mb: Its memory at that time.
        peak_mb: Its peak memory until then.
    """

    seconds: float
    resident_mb: float
    peak_mb: float


def _restarted(replica: ServiceProcess) -> Start:
    replica.stop()
    begun = time.perf_counter()
    replica.start()
    replica.wait_until_ready()
    return Start(time.perf_counter() - begun, *memory_mb(replica.pid))


def lines(addresses: ServerAddresses, replica: ServiceProcess, *, users: int) -> Iterator[str]:
    """Measure, and yield the results line by line.

    Args:
        addresses: The URLs of the servers; Redis is flushed.
        replica: The only replica of token-service; it is restarted.
        users: The number of users to publish.
    """
    asyncio.run(_publish(addresses.management_database_url, users))
    replica.stop()
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        administrator.flushall()
    starts = {"empty": _restarted(replica), "filled": _restarted(replica)}
    for found, start in starts.items():
        yield (
            f"token-service among {users:,} users, Redis {found}: ready after {start.seconds:.1f} s, "
            f"{start.resident_mb:.0f} MB resident, {start.peak_mb:.0f} MB peak"
        )
    peak = max(start.peak_mb for start in starts.values())
    met = "met   " if peak < _TARGET_MB else "MISSED"
    yield f"{met}  memory of a replica with {users:,} users: {peak:.0f} MB (target: {_TARGET_MB:.0f} MB)"
