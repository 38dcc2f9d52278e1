"""Consumers of the stream that survive lost connections and lost streams.

``EphemeralConsumer`` keeps its position itself, until it ends. With ``DurableConsumer`` the server keeps the position
under a name; a message is acknowledged when the next one is requested.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo
from nats.js.errors import NotFoundError

from stead.events._bus import STREAM, EventBus
from stead.events._pull_subscription import Interrupted, PullSubscription
from stead.events._start_position import FROM_BEGINNING, StartPosition, from_sequence

_RETRY_S: Final = 0.5
_INACTIVE_THRESHOLD_S: Final = 60.0
_ACK_WAIT_S: Final = 10.0
_DURABLE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TRANSIENT: Final = (Interrupted, NatsError, OSError, TimeoutError)
_log = logging.getLogger("stead.events")


class EphemeralConsumer:
    """Reads messages from a starting point with an ephemeral consumer, which it recreates after a failure.

    Iteration yields None when it has caught up with the stream.

    Attributes:
        stream: Identifies the incarnation of the stream; empty at first. A new incarnation is read from its beginning,
            because sequences of different incarnations are not comparable.
    """

    def __init__(self, bus: EventBus, subjects: Sequence[str], start: StartPosition) -> None:
        self.stream = ""
        self._bus = bus
        self._subjects = list(subjects)
        self._start = start
        self._next: ConsumerConfig | None = None

    async def __aiter__(self) -> AsyncGenerator[Msg | None, None]:
        while True:
            try:
                consumer = await self._make_consumer()
                async with PullSubscription(self._bus, consumer.name) as pull:
                    if not consumer.num_pending:
                        yield None
                    expected = 1
                    while True:
                        message = await pull.next()
                        if message is not None:
                            if message.metadata.sequence.consumer != expected:
                                raise Interrupted
                            expected += 1
                            self._next = from_sequence(message.metadata.sequence.stream + 1)
                        yield message
            except _TRANSIENT as error:
                await pause(self._bus, error)

    async def _make_consumer(self) -> ConsumerInfo:
        jetstream = self._bus.jetstream()
        start = await self._start.config()
        stream = str((await jetstream.stream_info(STREAM)).created)
        if self.stream and stream != self.stream:
            self._next = FROM_BEGINNING
        self.stream = stream
        return await jetstream.add_consumer(
            STREAM,
            self._next or start,
            name=f"tail-{uuid.uuid4().hex}",
            ack_policy=AckPolicy.NONE,
            filter_subjects=self._subjects,
            inactive_threshold=_INACTIVE_THRESHOLD_S,
            mem_storage=True,
        )


class DurableConsumer:
    """Reads messages with a durable consumer, one at a time, so that their order survives a crash.

    Several processes may share a name: a message goes to one of them, and the next one only after its acknowledgement.
    An unacknowledged message is redelivered at once when the iteration ends, or 10 s after a crash.
    """

    def __init__(self, bus: EventBus, name: str, subjects: Sequence[str], start: StartPosition) -> None:
        if _DURABLE.fullmatch(name) is None:
            raise ValueError("durable must be 1 to 64 letters, digits, '-' and '_'")
        self._bus = bus
        self._name = f"{bus.tenant_id}-{name}"  # names are per tenant
        self._subjects = list(subjects)
        self._start = start
        self._known = False
        self._unread: Msg | None = None
        self._read: Msg | None = None

    async def __aiter__(self) -> AsyncGenerator[Msg | None, None]:
        try:
            while True:
                try:
                    await self._ensure_consumer()
                    async with PullSubscription(self._bus, self._name) as pull:
                        while True:
                            await self._acknowledge_read()
                            self._unread = await pull.next()
                            if self._unread is None:
                                continue
                            async with _extending_ack_deadline(self._bus, self._unread):
                                yield self._unread
                            self._read, self._unread = self._unread, None
                except _TRANSIENT as error:
                    await pause(self._bus, error)
        finally:
            with contextlib.suppress(NatsError, OSError):
                await self._acknowledge_read()
                await self._release_unread()

    async def _acknowledge_read(self) -> None:
        """Acknowledge the message that the caller has processed, on the connection of now."""
        if self._read is not None:
            await _answer(self._bus, self._read, Msg.Ack.Ack)
            self._read = None

    async def _release_unread(self) -> None:
        """Have an unacknowledged message redelivered at once."""
        if self._unread is not None:
            await _answer(self._bus, self._unread, Msg.Ack.Nak)

    async def _ensure_consumer(self) -> None:
        """Find the consumer, or create it: at its starting point, or at the beginning of a recreated stream.

        Raises:
            ValueError: The name is in use for something else.
        """
        jetstream = self._bus.jetstream()
        try:
            found = (await jetstream.consumer_info(STREAM, self._name)).config
        except NotFoundError:
            await jetstream.add_consumer(
                STREAM,
                FROM_BEGINNING if self._known else await self._start.config(),
                name=self._name,
                durable_name=self._name,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=_ACK_WAIT_S,
                max_ack_pending=1,
                filter_subjects=self._subjects,
            )
        else:
            read = found.filter_subjects or [found.filter_subject]
            if read != self._subjects or found.max_ack_pending != 1:
                raise ValueError(f"the durable consumer {self._name!r} is already in use with another configuration")
        self._known = True


async def pause(bus: EventBus, error: Exception) -> None:
    """Wait before a retry, until there is a connection to retry on.

    Raises:
        EventsRefused: The connection is permanently closed.
    """
    if not isinstance(error, Interrupted | NotFoundError):
        _log.warning("event consumer interrupted: %s", type(error).__name__)
    await asyncio.sleep(_RETRY_S)
    await bus.reopened()


async def _answer(bus: EventBus, message: Msg, answer: bytes) -> None:
    """Answer a message on another connection, perhaps, than the one that it came on."""
    await bus.client.publish(message.reply, answer)


@contextlib.asynccontextmanager
async def _extending_ack_deadline(bus: EventBus, message: Msg) -> AsyncIterator[None]:
    """Extend the acknowledgement deadline of a message while it is being processed."""

    async def extend() -> None:
        while True:
            await asyncio.sleep(_ACK_WAIT_S / 3)
            with contextlib.suppress(NatsError, OSError):
                await _answer(bus, message, Msg.Ack.Progress)

    extending = asyncio.create_task(extend(), name="identity-events-in-progress")
    try:
        yield
    finally:
        extending.cancel()
