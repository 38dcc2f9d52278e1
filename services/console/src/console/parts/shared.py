"""Connections and metrics."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from litestar import Litestar
from prometheus_client import CollectorRegistry

from console.parts.connections import Connections
from console.settings import Settings
from identity_common.lifetime import Lifetime
from identity_common.stores.reachability import measure_reachability
from identity_common.telemetry.metrics import Samples


class Shared:
    """The connections, and the metrics of the service."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Connections(settings)
        self.registry, self.samples = CollectorRegistry(), Samples()
        measure_reachability(self.registry, self.samples, {"redis": self.connections.redis.ping})

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Close the connections at the end."""
        async with Lifetime() as lifetime:
            lifetime.at_end(self.connections.stop)
            yield
