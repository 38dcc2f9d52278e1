"""Metrics of how full Redis and the streams are: Redis never evicts, and a full stream refuses what is published."""

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.telemetry.metrics import Samples, gauge

if TYPE_CHECKING:
    from redis.asyncio import Redis

_UNLIMITED: Final = float("inf")


def measure_capacity(registry: CollectorRegistry, samples: Samples, *, redis: "Redis", bus: Bus) -> None:
    """Add these metrics to those of a service.

    Args:
        registry: The metrics.
        samples: Those computed when the metrics are read.
        redis: Of a user who may run ``INFO``.
        bus: Of a user who may ask for the account's use of JetStream.
    """
    memory = gauge(registry, "redis_memory_used_bytes", "Memory that Redis uses.")
    memory_limit = gauge(registry, "redis_memory_limit_bytes", "maxmemory of Redis, or the memory of its machine.")
    storage = gauge(registry, "bus_storage_used_bytes", "Bytes of the streams of the services' account in NATS.")
    storage_limit = gauge(registry, "bus_storage_limit_bytes", "Storage of that account; +Inf if it has no limit.")

    async def of_redis() -> list[float]:
        found = await redis.info("memory")
        limit = found.get("maxmemory") or found.get("total_system_memory") or _UNLIMITED
        return [float(found["used_memory"]), float(limit)]

    async def of_bus() -> list[float]:
        account = await bus.jetstream().account_info()
        limit = account.limits.max_storage
        return [float(account.storage), float(limit) if limit and limit > 0 else _UNLIMITED]

    samples.add([memory, memory_limit], of_redis)
    samples.add([storage, storage_limit], of_bus)
