"""A connection to NATS that is made in the background and made again, for ever, however it ended."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoServersError
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from identity_common.background import BackgroundLoop, end
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_INTERNAL
from stead.jetstream_silence import working_elsewhere
from stead.nats_addresses import parse_nats_addresses
from stead.nats_client import NatsClient

_log = get_logger(__name__)

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 2.0
_STEADY_S: Final = 5.0
_ATTEMPT_S: Final = 10.0
_REQUEST_TIMEOUT_S: Final = 2.0
_PING_S: Final = 2
"""A server that does not answer two pings is left at the third: within six seconds."""
_REFUSALS: Final = (
    "authorization violation",
    "authentication timeout",
    "authentication expired",
    "connections exceeded",
)
"""Errors with which a server refuses a login."""


class _Server(NamedTuple):
    """A server of the cluster.

    Attributes:
        url: Its address, without credentials.
        certified: The name in its certificate; None if that is the name in its address.
    """

    url: str
    certified: str | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc


class Bus:
    """A service's connection to NATS: to one server of several, and to another one when that fails.

    A service starts and works while NATS is down or refuses its login: ``start`` returns at once, and code that needs
    the bus awaits ``connected``. Every NATS user has its own inbox prefix, so that it cannot read the replies to
    another user.

    The servers in ``url`` are tried one after the other, then those that they named. The first is random, so that the
    replicas of a service spread over the servers. A server that stays connected is left when JetStream is silent there
    and answers at another one.

    Each connection has a client of its own, which ends with it: nats-py's own reconnection gives up when a server
    refuses the login, and what it buffers in the meantime would arrive late. A subscription therefore lasts as long as
    its connection; a ``StandingSubscription`` is made again on the next one.

    Args:
        url: ``nats://user:password@host:port``, or several with commas between them; see ``parse_nats_addresses``.
        service: Name of the service: ``management``.
        replicas: Number of replicas of the streams that the service creates.

    Attributes:
        service: Name of the service.
        replicas: Number of replicas of the streams that the service creates.
        connections: Number of connections made so far; a reader starts over when it changes.
        ended: Set when the present connection has ended; the next one has another event.
        refused_logins: Number of logins that a server has refused.
    """

    def __init__(self, url: str, *, service: str, replicas: int = 1) -> None:
        addresses = parse_nats_addresses(url)
        self._credentials = addresses.options
        self._servers = [_Server(each) for each in addresses.servers]
        random.shuffle(self._servers)
        self._discovered: list[_Server] = []
        self._last: _Server | None = None
        self._answering: _Server | None = None
        self.service = service
        self.replicas = replicas
        self.connections = 0
        self.refused_logins = 0
        self._client: NatsClient | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self.ended = asyncio.Event()
        self._pause_s = _FIRST_PAUSE_S
        self._reported: set[tuple[str, str]] = set()
        self._loop = BackgroundLoop(
            self._live, name="bus-connect", pause_s=self._next_pause_s, log=_log, failed="bus.failed"
        )

    def start(self) -> None:
        """Begin to connect in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Close the connection; messages that were not acknowledged are still in the outbox."""
        await self._loop.stop()
        await end(self._leaving)
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
        """Connect to the first server that accepts it, and return when the connection has ended or there is none."""
        for server in self._candidates():
            try:
                self._client = await self._connect(server)
            except (NatsError, OSError, TimeoutError) as error:
                self._report(server, error)
                continue
            self._last, self._answering = server, None
            await self._live_on(self._client, server)
            return

    def _candidates(self) -> Iterator[_Server]:
        """Yield the servers to try, and the one that the last connection was to after the others."""
        answering = () if self._answering is None else (self._answering,)
        servers = dict.fromkeys((*answering, *self._servers, *self._discovered))
        yield from (each for each in servers if each != self._last)
        if self._last is not None:
            yield self._last

    async def _live_on(self, client: NatsClient, server: _Server) -> None:
        connected_at = time.monotonic()
        self._reported.clear()
        self.connections += 1
        self._connected.set()
        _log.info("bus.connected", address=server.address, count=self.connections)
        watching = asyncio.create_task(self._leave_when_silent(client, server), name="bus-watch")
        try:
            await client.closing.wait()
        finally:
            await end(watching)
        self._disconnected()
        self._discovered = self._named_by(client, server)
        if time.monotonic() - connected_at >= _STEADY_S:  # a server may accept connections only to end them
            self._pause_s = _FIRST_PAUSE_S

    async def _leave_when_silent(self, client: Client, server: _Server) -> None:
        """Close a connection on which JetStream stays silent, once it works at another server."""

        def others() -> list[_Server]:
            known = dict.fromkeys((*self._servers, *self._named_by(client, server)))
            return [each for each in known if each != server]

        self._answering = await working_elsewhere(client, STREAM_INTERNAL, others=others, connect=self._connect)
        _log.warning("bus.jetstream-silent", address=server.address)
        # A task of its own: this one is ended as soon as the client begins to close.
        self._leaving = asyncio.create_task(_close(client), name="bus-leave")

    def _named_by(self, client: Client, server: _Server) -> list[_Server]:
        """Return the further servers of the cluster that a server has named.

        Their certificates must be for the name of the server that named them, which does so before it has shown its
        own: otherwise an attacker could name a server, and receive the password.
        """
        known = {each.address for each in self._servers}
        scheme, certified = urlsplit(server.url).scheme, server.certified or urlsplit(server.url).hostname
        named = [each.netloc for each in client.discovered_servers]
        return [_Server(f"{scheme}://{address}", certified) for address in named if address not in known]

    async def _connect(self, server: _Server) -> NatsClient:
        """Return a connected client.

        Raises:
            nats.errors.Error, OSError, TimeoutError: The server does not answer, or refuses the login.
        """
        client = NatsClient()
        unreachable: list[Exception] = []

        async def on_error(error: Exception) -> None:
            if client.is_connected:
                _log.debug("bus.error", error=type(error).__name__)
            else:
                unreachable.append(error)

        try:
            async with asyncio.timeout(_ATTEMPT_S):
                await client.connect(
                    server.url,
                    name=self.service,
                    inbox_prefix=f"_INBOX_{self.service}",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # 0 would mean for ever
                    reconnect_time_wait=0,
                    connect_timeout=2,
                    ping_interval=_PING_S,
                    max_outstanding_pings=2,
                    error_cb=on_error,
                    tls_hostname=server.certified,
                    **self._credentials,  # type: ignore[arg-type]
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
            address = None if self._last is None else self._last.address
            _log.warning("bus.disconnected", address=address, error=error)

    def _report(self, server: _Server, error: Exception) -> None:
        """Log why there is no connection to a server, each reason once: it may close the connection without one."""
        refusal = next((each for each in _REFUSALS if each in str(error).lower()), None)
        if refusal is not None:
            self.refused_logins += 1
        reason = refusal or type(error).__name__
        if (server.address, reason) in self._reported:
            return
        self._reported.add((server.address, reason))
        if refusal is not None:
            _log.error("bus.login-refused", address=server.address, reason=refusal)
        else:
            _log.warning("bus.unreachable", address=server.address, error=reason)

    def _next_pause_s(self) -> float:
        """Return a longer pause after each failure; random, so that the replicas do not return all at once."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret


async def _close(client: Client) -> None:
    if client.is_connected or client.is_connecting:
        with suppress(NatsError, OSError):  # the server is gone
            await client.close()
