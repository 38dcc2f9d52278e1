"""How long a replica of token-service takes until it is ready, and how large it is, with many users in the stream."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import redis

from all_in_one.provision import ServerAddresses
from benchmarks.many_users import ManyUsers
from benchmarks.measure import memory_mb
from tests.support.processes import ServiceProcess

_TARGET_MB: Final = 150.0


async def _tell(database_url: str, users: int) -> None:
    async with ManyUsers(database_url) as many_users:
        await many_users.tell(users)


class Start(msgspec.Struct, frozen=True):
    """One start of a replica.

    Attributes:
        seconds: Until it was ready.
        resident_mb: Its memory then.
        peak_mb: The most that it had until then.
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
    """Measure, and yield what was found, line by line.

    Args:
        addresses: Of the servers; Redis is emptied.
        replica: The only one of token-service; it is stopped and started.
        users: How many of them are put into the stream.
    """
    asyncio.run(_tell(addresses.management_database_url, users))
    replica.stop()
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        administrator.flushall()
    starts = {"empty": _restarted(replica), "filled": _restarted(replica)}
    for found, start in starts.items():
        yield (
            f"token-service among {users:,} users, Redis {found}: ready after {start.seconds:.1f} s, "
            f"{start.resident_mb:.0f} MB resident, {start.peak_mb:.0f} MB at most"
        )
    peak = max(start.peak_mb for start in starts.values())
    met = "met   " if peak < _TARGET_MB else "MISSED"
    yield f"{met}  memory of a replica with {users:,} users: {peak:.0f} MB (target: {_TARGET_MB:.0f} MB)"
