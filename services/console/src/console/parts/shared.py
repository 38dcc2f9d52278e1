"""Connections, metrics, and the pages with their branding."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from litestar import Litestar
from prometheus_client import CollectorRegistry

from console.parts.connections import Connections
from console.rendering import Look, Pages
from console.settings import Settings
from identity_common.lifetime import Lifetime
from identity_common.stores.reachability import measure_reachability
from identity_common.telemetry.metrics import Samples, counter


class Shared:
    """The connections, the metrics and the pages of the service."""

    def __init__(self, settings: Settings) -> None:
        self.connections = Connections(settings)
        self.registry, self.samples = CollectorRegistry(), Samples()
        self.throttled = counter(self.registry, "throttled", "Attempts beyond a limit, by limit.", "limit")
        self.pages = Pages(
            Look(
                settings.console_name,
                settings.console_color,
                settings.console_logo_uri,
                settings.console_ticket_url,
            )
        )
        measure_reachability(self.registry, self.samples, {"redis": self.connections.redis.ping})

    @asynccontextmanager
    async def lifespan(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Close the connections at the end."""
        async with Lifetime() as lifetime:
            lifetime.at_end(self.connections.stop)
            yield
