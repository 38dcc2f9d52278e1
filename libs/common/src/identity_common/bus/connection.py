"""A connection to NATS that is made in the background and reconnects for ever."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.js import JetStreamContext

from identity_common.background import end
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_RECONNECT_WAIT_S: Final = 0.25
_REQUEST_TIMEOUT_S: Final = 2.0


class Bus:
    """A service's connection to NATS.

    A service starts and works while NATS is down: ``start`` returns at once, and code that needs the bus awaits
    ``connected``. Every NATS user has its own inbox prefix, so that it cannot read the replies to another user.

    Attributes:
        service: Name of the service: ``management``.
        client: The client; usable once ``connected`` has returned.
        connections: Number of connections made so far; a reader starts over when it changes.
    """

    def __init__(self, url: str, *, service: str) -> None:
        self._url = url
        self.service = service
        self.client = Client()
        self.connections = 0
        self._connected = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to connect in the background."""
        self._connecting = asyncio.create_task(self._connect(), name="bus-connect")

    async def stop(self) -> None:
        """Close the connection; messages that were not acknowledged are still in the outbox."""
        await end(self._connecting)
        await self.client.close()

    async def connected(self) -> None:
        """Wait for a connection."""
        await self._connected.wait()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as the client knows."""
        return self._connected.is_set()

    def jetstream(self, *, api: str = "$JS.API") -> JetStreamContext:
        """Return a JetStream context on this connection.

        Args:
            api: Prefix of the API subjects; that of an import reaches JetStream in another account.
        """
        return self.client.jetstream(prefix=api, timeout=_REQUEST_TIMEOUT_S)

    async def _connect(self) -> None:
        await self.client.connect(
            self._url,
            name=self.service,
            inbox_prefix=f"_INBOX_{self.service}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # annotated as int, but passed to sleep
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_connect,
            allow_reconnect=True,
        )
        await self._on_connect()

    async def _on_connect(self) -> None:
        self.connections += 1
        self._connected.set()
        _log.info("bus.connected", address=_address(self._url), count=self.connections)

    async def _on_disconnect(self) -> None:
        self._connected.clear()
        _log.warning("bus.disconnected", address=_address(self._url))

    async def _on_error(self, error: Exception) -> None:
        _log.debug("bus.error", error=type(error).__name__)


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 4222}"
