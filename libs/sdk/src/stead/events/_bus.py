"""The connection to the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from stead.errors import IdentityError, Unavailable
from stead.events._cancellation import cancel
from stead.jetstream_silence import working_elsewhere
from stead.nats_addresses import parse_nats_addresses
from stead.nats_client import NatsClient

STREAM: Final = "IDENTITY_EVENTS"

_RECONNECT_WAIT_S: Final = 0.5
_CHECK_S: Final = 0.1
_REQUEST_TIMEOUT_S: Final = 2.0
_PING_S: Final = 2
_log = logging.getLogger("stead.events")


class EventsRefused(IdentityError):  # noqa: N818 - the names read as the answer
    """The bus rejects this user at the start, or the connection was closed with ``aclose``."""


class EventBus:
    """A connection to NATS for reading the public events; an asynchronous context manager.

    ::

        async with EventBus("nats://bus.example.com:4222", user="subscriber", password=...) as bus:
            async for change in permission_changes(bus):
                ...

    Entering waits for the connection, 10 s by default. A lost connection is re-established, however long that takes
    and even if the bus rejects the user meanwhile, and every iteration over it resumes where it was. In a cluster
    another server takes over; one that does not answer is left after six seconds, and one at which JetStream does not
    work for another one of the given servers at which it does.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        tenant_id: str = "default",
        name: str = "stead-sdk",
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float | None = 10.0,
    ) -> None:
        """Create a connection; nothing is sent yet.

        Args:
            url: ``nats://host:port``, or the servers of a cluster separated by commas; may contain user and password,
                the same ones in each.
            user: The NATS user, from the operator of the service.
            password: Its password.
            tenant_id: The tenant.
            name: The name of this connection in the server's monitoring.
            tls: For ``tls://`` with your own certificates.
            connect_timeout_s: How many seconds entering waits for the first connection; None waits until there is one.

        Raises:
            ValueError: An address is malformed, or they differ in more than host and port.
        """
        addresses = parse_nats_addresses(url)
        credentials = addresses.options if user is None else {"user": user, "password": password}
        self.tenant_id = tenant_id
        self._servers = [*addresses.servers]
        random.shuffle(self._servers)
        self._connect_timeout_s = connect_timeout_s
        self._options = {**credentials, "name": name, "tls": tls}
        self._client = NatsClient()
        self._refused = asyncio.Event()
        self._is_closed = False
        self._reported: set[str] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._interruptions: set[Callable[[], None]] = set()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            EventsRefused: The server rejects the user.
            Unavailable: No server answered in time: the address is wrong, or the bus is down.
        """
        connecting = asyncio.create_task(self._connect(self._client), name="identity-events-connect")
        refused = asyncio.create_task(self._refused.wait(), name="identity-events-refused")
        try:
            ended, _ = await asyncio.wait(
                (connecting, refused), timeout=self._connect_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            self._require_acceptance(ended)
            await connecting
        except BaseException:
            await cancel(connecting)
            await self.aclose()
            raise
        finally:
            refused.cancel()
        self._keeping = asyncio.create_task(self._keep(), name="identity-events-keep")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, which ends every iteration over it."""
        self._is_closed = True
        await cancel(self._keeping, self._leaving)
        await self._client.close()
        await self._on_change()

    @property
    def client(self) -> Client:
        """The underlying NATS client, for other uses of the connection.

        There is a new client, without the former's subscriptions, after the bus has rejected the user for a while, and
        after a server was left because JetStream did not work there.
        """
        return self._client

    def jetstream(self) -> JetStreamContext:
        """Return the JetStream interface of the connection."""
        return self._client.jetstream(timeout=_REQUEST_TIMEOUT_S)

    async def reopened(self) -> None:
        """Wait until there is a client to use.

        Raises:
            EventsRefused: The connection was closed with ``aclose``.
        """
        while self._client.is_closed and not self._is_closed:  # noqa: ASYNC110
            await asyncio.sleep(_CHECK_S)
        if self._is_closed:
            raise EventsRefused("the connection to the bus is closed")

    def _require_acceptance(self, ended: Collection[object]) -> None:
        if self._refused.is_set():
            raise EventsRefused("the bus rejects this user")
        if not ended:
            raise Unavailable(f"the bus did not answer within {self._connect_timeout_s:g} s: {','.join(self._servers)}")

    @contextlib.contextmanager
    def on_interruption(self, interrupted: Callable[[], None]) -> Iterator[None]:
        """Call back when the connection is replaced or closed, which voids pending requests."""
        self._interruptions.add(interrupted)
        try:
            yield
        finally:
            self._interruptions.discard(interrupted)

    async def _connect(self, client: Client) -> None:
        """Try to connect until it succeeds."""
        await client.connect(
            self._servers,
            **self._options,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # seconds; a float works
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            dont_randomize=True,
            error_cb=self._on_error,
            reconnected_cb=self._on_change,
            closed_cb=self._on_change,
        )
        self._reported.clear()

    async def _keep(self) -> None:
        """Replace the client whenever it has closed, as it does for good when the server rejects its user."""
        while True:
            leaving = asyncio.create_task(self._leave_when_silent(self._client), name="identity-events-watch")
            try:
                await self._client.closing.wait()
            finally:
                await cancel(leaving)
            await self._on_change()
            client = NatsClient()
            try:
                await self._connect(client)
            except (NatsError, OSError, TimeoutError, ValueError) as error:  # ValueError: a greeting that is malformed
                await client.close()
                await self._on_error(error)
                await asyncio.sleep(_RECONNECT_WAIT_S)
            except asyncio.CancelledError:
                await client.close()
                raise
            else:
                self._client = client

    async def _leave_when_silent(self, client: Client) -> None:
        """Close a client at whose server JetStream stays silent, once it works at another one, which is tried first."""

        def others() -> list[str]:
            left = client.connected_url if client.is_connected else None
            return [] if left is None else [each for each in self._servers if urlsplit(each).netloc != left.netloc]

        found = await working_elsewhere(client, STREAM, others=others, connect=self._connect_to)
        _log.warning("JetStream does not work at a server, which is left")
        self._servers.sort(key=lambda each: each != found)
        # A task of its own: this one is ended as soon as the client begins to close.
        self._leaving = asyncio.create_task(_close(client), name="identity-events-leave")

    async def _connect_to(self, server: str) -> Client:
        """Connect to one server, once."""
        client = NatsClient()
        try:
            await client.connect(
                server,
                **self._options,  # type: ignore[arg-type]
                allow_reconnect=False,
                max_reconnect_attempts=1,  # 0 would mean for ever
                reconnect_time_wait=0,
                error_cb=self._ignore,
            )
        except BaseException:
            await client.close()
            raise
        return client

    async def _ignore(self, error: Exception) -> None:
        """Do nothing: the error is raised, too."""

    async def _on_change(self) -> None:
        self._reported.clear()
        for interrupted in tuple(self._interruptions):
            interrupted()

    async def _on_error(self, error: Exception) -> None:
        """Log the error; without a connection each one once."""
        is_refusal = "authorization" in str(error).lower()
        if is_refusal and not self._client.is_connected:
            self._refused.set()
        reason = "the user is rejected" if is_refusal else type(error).__name__
        if self._client.is_connected or reason not in self._reported:
            self._reported.add(reason)
            _log.warning("bus error: %s", reason)


async def _close(client: Client) -> None:
    with contextlib.suppress(NatsError, OSError):  # the server is gone
        await client.close()
