"""The connection to the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from nats.aio.client import Client
from nats.js import JetStreamContext

from stead.errors import IdentityError
from stead.events._cancellation import cancel

STREAM: Final = "IDENTITY_EVENTS"

_RECONNECT_WAIT_S: Final = 0.5
_REQUEST_TIMEOUT_S: Final = 2.0
_log = logging.getLogger("stead.events")


class EventsRefused(IdentityError):  # noqa: N818 - the names read as the answer
    """The bus does not let this user in, or has ended the connection for good: waiting will not help."""


class EventBus:
    """A connection to NATS for reading the public events; an asynchronous context manager.

    Entering waits until there is a connection, however long that takes. Afterwards it is made again whenever it is
    lost, and whoever reads goes on where they were. It is asyncio only, as the NATS library below it is.
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
    ) -> None:
        """Prepare to connect; nothing is sent yet.

        Args:
            url: ``nats://host:port``, or several with commas; may hold user and password.
            user: The user that whoever runs the service has given you.
            password: Its password.
            tenant_id: Whose events.
            name: What the server shows of this connection.
            tls: For ``tls://`` with certificates of your own.
        """
        self.tenant_id = tenant_id
        self._url = url
        self._options = {"user": user, "password": password, "name": name, "tls": tls}
        self._client = Client()
        self._refused = asyncio.Event()
        self._interruptions: set[Callable[[], None]] = set()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            EventsRefused: The server does not let this user in.
        """
        connecting = asyncio.create_task(self._connect(), name="identity-events-connect")
        refused = asyncio.create_task(self._refused.wait(), name="identity-events-refused")
        try:
            await asyncio.wait((connecting, refused), return_when=asyncio.FIRST_COMPLETED)
            self.require_open()
            await connecting
        except BaseException:
            await cancel(connecting)
            await self.close()
            raise
        finally:
            refused.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and with it all reading."""
        await self._client.close()

    @property
    def client(self) -> Client:
        """The connection as the NATS library has it, for whatever else you read with it."""
        return self._client

    def jetstream(self) -> JetStreamContext:
        """Return JetStream's interface to the connection."""
        return self._client.jetstream(timeout=_REQUEST_TIMEOUT_S)

    def require_open(self) -> None:
        """Do nothing while the connection is there or will be again.

        Raises:
            EventsRefused: It will not be.
        """
        if self._refused.is_set():
            raise EventsRefused("the bus does not let this user in")
        if self._client.is_closed:
            raise EventsRefused("the connection to the bus is closed")

    @contextlib.contextmanager
    def on_interruption(self, interrupted: Callable[[], None]) -> Iterator[None]:
        """Call somebody whenever the connection was replaced or has ended: what had been asked for will not come."""
        self._interruptions.add(interrupted)
        try:
            yield
        finally:
            self._interruptions.discard(interrupted)

    async def _connect(self) -> None:
        await self._client.connect(
            self._url.split(","),
            **self._options,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            reconnect_time_wait=_RECONNECT_WAIT_S,  # type: ignore[arg-type]  # seconds; a float is what it sleeps
            ping_interval=5,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            reconnected_cb=self._on_change,
            closed_cb=self._on_change,
        )

    async def _on_change(self) -> None:
        for interrupted in tuple(self._interruptions):
            interrupted()

    async def _on_error(self, error: Exception) -> None:
        if "authorization violation" in str(error).lower() and not self._client.is_connected:
            self._refused.set()
        _log.warning("the bus: %s", type(error).__name__)
