"""The live messages of the feed, which every replica receives from the one that sequences and passes to its readers."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Generator
from typing import Final, NamedTuple, Self

import asyncpg

from identity_common.background import BackgroundLoop
from identity_common.failures import TemporarilyUnavailable
from identity_common.places import Places
from identity_common.stopping import call_when_stopping
from identity_common.stores.database_servers import database_servers, require_primary
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

CHANNEL: Final = "not-valid-feed"

_RETRY_S: Final = 0.5
_SILENCE_S: Final = 2.0
_ANSWER_S: Final = 3.0
_QUEUED: Final = 1000
_READERS: Final = 2000


class TooManyReadersError(TemporarilyUnavailable):
    """This replica has reached its limit of readers."""

    def __init__(self) -> None:
        super().__init__(why="the feed cannot be read right now")


class LiveMessage(NamedTuple):
    """A signed message.

    Attributes:
        epoch: The feed's epoch.
        to: The sequence after it.
        token: The JWS.
    """

    epoch: int
    to: int
    token: str

    def notification(self, tenant_id: str) -> str:
        """Return the payload of its notification."""
        return f"{tenant_id} {self.epoch} {self.to} {self.token}"

    @classmethod
    def parse(cls, notification: str, *, tenant_id: str) -> Self | None:
        """Return the message in a notification; none if it is another tenant's."""
        tenant, epoch, to, token = notification.split(" ")
        return cls(int(epoch), int(to), token) if tenant == tenant_id else None


class _Reader:
    """A reader with its queue of messages."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[LiveMessage | None] = asyncio.Queue()
        self._has_ended = False

    def put(self, message: LiveMessage) -> None:
        """Queue a message; a reader that is too slow is ended, and can resume from its position."""
        if self._queue.qsize() >= _QUEUED:
            self.end()
        elif not self._has_ended:
            self._queue.put_nowait(message)

    def end(self) -> None:
        """End the reading after the queued messages."""
        if not self._has_ended:
            self._has_ended = True
            self._queue.put_nowait(None)

    async def messages(self) -> AsyncGenerator[LiveMessage, None]:
        """Yield messages until the reading is ended."""
        while (message := await self._queue.get()) is not None:
            yield message


class Tail:
    """Listens to the database and passes each message on.

    Args:
        database_url: This service's database.
        tenant_id: The tenant.
        readers_per_client: How many readers one client may have, so that it does not take the places of others.
    """

    def __init__(self, database_url: str, *, tenant_id: str, readers_per_client: int) -> None:
        self._servers = database_servers(database_url)
        self._tenant_id = tenant_id
        self._readers: set[_Reader] = set()
        self._places = Places(of_one=readers_per_client)
        self._last: LiveMessage | None = None
        self._heard_at = time.monotonic()
        self._loop = BackgroundLoop(
            self._listen,
            name="not-valid-tail",
            pause_s=_RETRY_S,
            log=_log.bind(store="postgresql"),
            failed="not-valid-tail.failed",
            interrupted="not-valid-tail.interrupted",
            expected=(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError),
        )

    @property
    def sequence(self) -> int:
        """The last sequence received; 0 before the first message."""
        return self._last.to if self._last else 0

    @property
    def silence_s(self) -> float:
        """Seconds since the last message, heartbeats included."""
        return time.monotonic() - self._heard_at

    @property
    def readers(self) -> int:
        """How many readers follow the feed at this replica."""
        return len(self._readers)

    def start(self) -> None:
        """Start listening in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop listening, and end every reading."""
        await self._loop.stop()
        self._end_readings()

    @contextlib.contextmanager
    def reading(self, client: str) -> Generator[AsyncGenerator[LiveMessage, None], None, None]:
        """Return the messages from now on; they end when one was missed, and when the server stops.

        Args:
            client: The client that the reader is counted for.

        Raises:
            TooManyReadersError: There are too many readers.
            NoPlaceLeftError: There are too many of this client.
        """
        with self._places.taken_by(client):
            if len(self._readers) >= _READERS:
                raise TooManyReadersError
            reader = _Reader()
            self._readers.add(reader)
            forget = call_when_stopping(reader.end)
            try:
                yield reader.messages()
            finally:
                forget()
                self._readers.discard(reader)

    async def _listen(self) -> None:
        connection = await self._servers.connect(command_timeout=5)
        try:
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(CHANNEL, self._take)
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SILENCE_S):
                        await ended.wait()
                if self.silence_s > _SILENCE_S:
                    await require_primary(connection, within_s=_ANSWER_S)
        finally:
            connection.terminate()
            self._end_readings()

    def _take(self, _: object, __: int, ___: str, payload: object) -> None:
        message = LiveMessage.parse(str(payload), tenant_id=self._tenant_id)
        if message is not None:
            self._last, self._heard_at = message, time.monotonic()
            for reader in tuple(self._readers):
                reader.put(message)

    def _end_readings(self) -> None:
        for reader in tuple(self._readers):
            reader.end()
