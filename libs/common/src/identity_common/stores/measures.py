"""Metrics of a service's connections: whether each store answers, and how long requests wait for the database."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.stores.database import MeasuredPool
from identity_common.stores.reachability import measure_reachability
from identity_common.telemetry.metrics import NAMESPACE, Samples

if TYPE_CHECKING:
    from redis.asyncio import Redis

_ANYTHING: Final = text("SELECT 1")


def measure_stores(
    registry: CollectorRegistry, samples: Samples, *, engine: AsyncEngine, redis: "Redis", bus: Bus
) -> None:
    """Add these metrics to those of a service."""
    registry.register(_PoolCollector(engine))
    registry.register(_BusCollector(bus))

    async def postgresql() -> None:
        async with engine.connect() as connection:
            await connection.execute(_ANYTHING)

    async def nats() -> None:
        if not bus.is_connected:
            raise ConnectionError

    measure_reachability(registry, samples, {"postgresql": postgresql, "redis": redis.ping, "nats": nats})


class _BusCollector(Collector):
    """Reads the number that the connection to NATS keeps itself."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield CounterMetricFamily(
            f"{NAMESPACE}_bus_refused_logins", "Logins that a NATS server has refused.", value=self._bus.refused_logins
        )


class _PoolCollector(Collector):
    """Reads the numbers that a pool of connections keeps itself."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        pool = self._engine.pool
        assert isinstance(pool, MeasuredPool)  # noqa: S101 - create_database_engine
        name = f"{NAMESPACE}_database_pool"
        yield GaugeMetricFamily(f"{name}_connections", "Size of the pool of database connections.", value=pool.size())
        yield GaugeMetricFamily(f"{name}_connections_used", "Connections in use.", value=pool.checkedout())
        yield CounterMetricFamily(
            f"{name}_waits", "Number of times that a request waited for a connection.", value=pool.waits.count
        )
        yield CounterMetricFamily(
            f"{name}_wait_seconds", "Time that requests waited for a connection, in seconds.", value=pool.waits.seconds
        )
