"""A connection to NATS that is made in the background and made again, for ever, however it ended."""

import asyncio
import random
import time
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoServersError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from identity_common.background import BackgroundLoop
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 2.0
_STEADY_S: Final = 5.0
_ATTEMPT_S: Final = 10.0
_ENDED_CHECK_S: Final = 0.1
_REQUEST_TIMEOUT_S: Final = 2.0
_REFUSALS: Final = (
    "authorization violation",
    "authentication timeout",
    "authentication expired",
    "connections exceeded",
)
"""Errors with which a server refuses a login."""


class Bus:
    """A service's connection to NATS.

    A service starts and works while NATS is down or refuses its login: ``start`` returns at once, and code that needs
    the bus awaits ``connected``. Every NATS user has its own inbox prefix, so that it cannot read the replies to
    another user.

    Each connection has a client of its own, which ends with it: nats-py's own reconnection gives up when a server
    refuses the login, and what it buffers in the meantime would arrive late. A subscription therefore lasts as long as
    its connection; a ``StandingSubscription`` is made again on the next one.

    Attributes:
        service: Name of the service: ``management``.
        connections: Number of connections made so far; a reader starts over when it changes.
        ended: Set when the present connection has ended; the next one has another event.
    """

    def __init__(self, url: str, *, service: str) -> None:
        self._url = url
        self.service = service
        self.connections = 0
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self.ended = asyncio.Event()
        self._pause_s = _FIRST_PAUSE_S
        self._reported: set[str] = set()
        self._loop = BackgroundLoop(
            self._live, name="bus-connect", pause_s=self._next_pause_s, log=_log, failed="bus.failed"
        )

    def start(self) -> None:
        """Begin to connect in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Close the connection; messages that were not acknowledged are still in the outbox."""
        await self._loop.stop()
        if self._client is not None:
            self._disconnected()
            await _close(self._client)

    async def connected(self) -> None:
        """Wait for a connection."""
        await self._connected.wait()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as the client knows."""
        return self._connected.is_set() and self.client.is_connected

    @property
    def client(self) -> Client:
        """The client of the current connection, or of the last one.

        Raises:
            nats.errors.ConnectionClosedError: There was no connection yet.
        """
        if self._client is None:
            raise ConnectionClosedError
        return self._client

    def jetstream(self, *, api: str = "$JS.API") -> JetStreamContext:
        """Return a JetStream context on this connection.

        Args:
            api: Prefix of the API subjects; that of an import reaches JetStream in another account.

        Raises:
            nats.errors.ConnectionClosedError: There was no connection yet.
        """
        return self.client.jetstream(prefix=api, timeout=_REQUEST_TIMEOUT_S)

    async def _live(self) -> None:
        """Connect, and return when the connection has ended or could not be made."""
        try:
            self._client = await self._connect()
        except (NatsError, OSError, TimeoutError) as error:
            self._report(error)
            return
        connected_at = time.monotonic()
        self._reported.clear()
        self.connections += 1
        self._connected.set()
        _log.info("bus.connected", address=_address(self._url), count=self.connections)
        await _ended(self._client)
        self._disconnected()
        if time.monotonic() - connected_at >= _STEADY_S:  # a server may accept connections only to end them
            self._pause_s = _FIRST_PAUSE_S

    async def _connect(self) -> Client:
        """Return a connected client.

        Raises:
            nats.errors.Error, OSError, TimeoutError: There is no server, or it refuses the login.
        """
        client = Client()
        unreachable: list[Exception] = []

        async def on_error(error: Exception) -> None:
            if client.is_connected:
                _log.debug("bus.error", error=type(error).__name__)
            else:
                unreachable.append(error)

        try:
            async with asyncio.timeout(_ATTEMPT_S):
                await client.connect(
                    self._url,
                    name=self.service,
                    inbox_prefix=f"_INBOX_{self.service}",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # 0 would mean for ever
                    reconnect_time_wait=0,
                    connect_timeout=2,
                    ping_interval=5,
                    max_outstanding_pings=2,
                    error_cb=on_error,
                )
        except BaseException as error:
            await _close(client)
            if isinstance(error, NoServersError) and unreachable:
                raise unreachable[-1] from None
            raise
        return client

    def _disconnected(self) -> None:
        if self._connected.is_set():
            self._connected.clear()
            self.ended.set()
            self.ended = asyncio.Event()
            ended_by = self.client.last_error
            error = None if ended_by is None else type(ended_by).__name__
            _log.warning("bus.disconnected", address=_address(self._url), error=error)

    def _report(self, error: Exception) -> None:
        """Log why there is no connection, each reason once: a server may close the connection with or without one."""
        refusal = next((each for each in _REFUSALS if each in str(error).lower()), None)
        reason = refusal or type(error).__name__
        if reason in self._reported:
            return
        self._reported.add(reason)
        address = _address(self._url)
        if refusal is not None:
            _log.error("bus.login-refused", address=address, reason=refusal)
        else:
            _log.warning("bus.unreachable", address=address, error=reason)

    def _next_pause_s(self) -> float:
        """Return a longer pause after each failure; random, so that the replicas do not return all at once."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret


async def _ended(client: Client) -> None:
    """Wait until a client has ended: it polls, since a client that fails to close calls no callback."""
    while not client.is_closed:  # noqa: ASYNC110
        await asyncio.sleep(_ENDED_CHECK_S)


async def _close(client: Client) -> None:
    if client.is_connected or client.is_connecting:
        with suppress(NatsError, OSError):  # the server is gone
            await client.close()


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 4222}"
