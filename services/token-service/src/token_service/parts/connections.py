"""The connections to PostgreSQL, Redis and NATS."""

from identity_common.bus.connection import Bus
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from token_service.settings import Settings


class Connections:
    """The pools and clients of the service; none of them connects before the lifespan starts."""

    def __init__(self, settings: Settings) -> None:
        self.engine = create_database_engine(
            settings.database_url, service="token-service", pool_size=settings.database_connections
        )
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.redis_for_takes = connect_redis(settings.redis_url, blocking=True)
        self.bus = Bus(settings.nats_url, service="token", replicas=settings.nats_replicas)

    def start(self) -> None:
        """Begin to connect to the bus; the others connect when they are used."""
        self.bus.start()

    async def stop(self) -> None:
        """Close all connections."""
        await self.bus.stop()
        await self.redis_for_takes.aclose()
        await self.redis.aclose()
        await self.engine.dispose()
