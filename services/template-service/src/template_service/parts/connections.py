"""The connections to PostgreSQL, Redis and NATS."""

from identity_common.bus.connection import Bus
from identity_common.stores.lookups import Lookups
from identity_common.stores.reader import Reader
from identity_common.stores.redis import RedisCommands, connect_redis
from template_service.parts.shared_with_commands import engine, engine_for_repairs
from template_service.settings import Settings


class Connections:
    """The pools and clients of the service; none of them connects before the lifespan starts."""

    def __init__(self, settings: Settings) -> None:
        self.engine = engine(settings)
        self.for_repairs = engine_for_repairs(settings)
        self.reader = Reader(self.engine, settings.database_url, service="template-service")
        self.lookups = Lookups(settings.database_url, service="template-service")
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.bus = Bus(settings.nats_url, service="template", replicas=settings.nats_replicas)

    def start(self) -> None:
        """Begin to connect to the bus; the others connect when they are used."""
        self.bus.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self.bus.stop()
        await self.redis.aclose()
        self.lookups.stop()
        await self.for_repairs.dispose()
        await self.reader.dispose()
