"""The connections to Redis and to the APIs."""

import httpx2 as httpx

from console.settings import Settings
from console.transport import CONSOLE_TIMEOUT_S, RoutedTransport
from identity_common.http.routing import Service
from identity_common.stores.redis import RedisCommands, connect_redis


class Connections:
    """The pools and clients of the service; all of them connect when they are used."""

    def __init__(self, settings: Settings) -> None:
        self.redis = connect_redis(settings.redis_url)
        self.commands = RedisCommands(self.redis)
        self.http = httpx.AsyncClient(transport=_transport(settings), timeout=CONSOLE_TIMEOUT_S)

    async def stop(self) -> None:
        """Close all connections."""
        await self.http.aclose()
        await self.redis.aclose()


def _transport(settings: Settings) -> RoutedTransport:
    addresses: dict[Service, str | None] = {
        "management": settings.management_url,
        "token": settings.token_url,
        "template": settings.template_url,
    }
    return RoutedTransport(settings.base_url, {name: address for name, address in addresses.items() if address})
