"""Reads a stream in order from a position, in batches, without losing a message.

Uses a pull consumer without acknowledgements and keeps a few pull requests outstanding; a push consumer would drop a
slow reader. A gap, a missing heartbeat or a reconnection raises ``ReadingInterrupted``; the caller resumes from the
last position that it has applied. A message whose event does not belong to its subject is skipped and logged: the
permissions of the bus should have prevented it.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from msgspec import DecodeError, json
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from identity_common.background import end
from identity_common.bus.connection import Bus
from identity_common.bus.streams import existing_stream, replicas_of
from identity_common.telemetry.logs import get_logger
from identity_common.telemetry.traceparent import HEADER as TRACEPARENT_HEADER
from identity_common.telemetry.tracing import tracing
from identity_common.wire.events import is_genuine
from stead.event_types import CloudEvent

_log = get_logger(__name__)

_PULL: Final = 500
_OUTSTANDING: Final = 3 * _PULL
"""How many messages are requested before the end of the stream; there, one request waits, for the server sends
heartbeats for each."""
_PULL_BYTES: Final = 16 * 1024 * 1024
_EXPIRES_S: Final = 30
_HEARTBEAT_S: Final = 2
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S
_CONSUMER_TTL_S: Final = 60.0
_CREATION_S: Final = 1.0
_LOST_REQUESTS: Final = 5
_ORIGIN_HEADER: Final = "Nats-Stream-Source"
_TRACED_FOR: Final = timedelta(minutes=1)
_MAX_CREATION_S: Final = 30.0
"""With millions of subjects, a busy server takes seconds to count the pending messages of a new consumer."""

_decode_event = json.Decoder(CloudEvent).decode


class ReadingInterrupted(Exception):  # noqa: N818 - not an error: resume from the last position
    """The consumer is gone or silent, or a message is missing."""


class StreamMessage(NamedTuple):
    """One message of a stream.

    Attributes:
        subject: Its subject.
        sequence: Its position in the stream.
        event: The event; its source, tenant and aggregate match the subject.
    """

    subject: str
    sequence: int
    event: CloudEvent


class StreamPosition(NamedTuple):
    """A position in a stream; by default before everything.

    Attributes:
        stream: The incarnation of the stream: the positions of a recreated one start again.
        sequence: The position in it.
    """

    stream: str = ""
    sequence: int = 0

    def within(self, stream: str) -> "StreamPosition":
        """Return this position if it is in this incarnation; otherwise its beginning."""
        return self if self.stream == stream else StreamPosition(stream)

    def is_behind(self, other: "StreamPosition") -> bool:
        """Return whether this position is before another one, or in another incarnation."""
        return self.stream != other.stream or self.sequence < other.sequence


class Batch(NamedTuple):
    """Messages in the order of the stream.

    Attributes:
        messages: The messages; empty for a heartbeat.
        caught_up: Whether these were the last messages of the stream when they, or the heartbeat, were sent.
        origin: The position of the last one in the stream that it was copied from; 0 if it was not, or without one.
        goes_on_at: Where reading goes on, if that is in another stream.
    """

    messages: list[StreamMessage]
    caught_up: bool
    origin: int = 0
    goes_on_at: StreamPosition | None = None

    @property
    def changed_at(self) -> str | None:
        """The time of its first change; None if it has none."""
        return next((each.event.time for each in self.messages if not each.event.type.startswith("revision.")), None)

    def end(self, after: StreamPosition) -> StreamPosition:
        """Return the position after the batch, which was read after the given one."""
        if self.goes_on_at is not None:
            return self.goes_on_at
        return StreamPosition(after.stream, self.messages[-1].sequence) if self.messages else after


class StreamReader:
    """Reads the messages of one stream that match the given subjects.

    Args:
        bus: The connection.
        stream: Name of the stream.
        subjects: Of the messages.
        reader: What the messages are read for; the name of the spans of their processing.
    """

    def __init__(self, bus: Bus, stream: str, subjects: Sequence[str], *, reader: str = "reader") -> None:
        self._spans = partial(_spans_of, reader) if tracing().is_on else _no_spans
        self._bus = bus
        self._stream = stream
        self._subjects = list(subjects)
        self._failures = 0
        self._failed_on = 0

    async def identity(self) -> str:
        """Return the incarnation of the stream, within which positions are comparable; create a missing stream first.

        Raises:
            nats.errors.Error: The server does not answer.
        """
        return str((await existing_stream(self._bus, self._stream))["created"])

    async def read_after(self, sequence: int) -> AsyncGenerator[Batch, None]:
        """Yield batches of the messages after a position, then of new ones; an empty batch for a heartbeat.

        Args:
            sequence: The last position that the caller has applied; 0 for the beginning.

        Raises:
            ReadingInterrupted: Resume from the last applied position.
            nats.errors.Error: The server did not answer.
        """
        ended = self._bus.ended
        inbox = self._bus.client.new_inbox()
        arrived: list[Msg] = []
        has_arrived = asyncio.Event()

        async def wake_at_end() -> None:
            await ended.wait()
            has_arrived.set()

        async def keep(message: Msg) -> None:
            arrived.append(message)
            has_arrived.set()

        subscription = await self._bus.client.subscribe(inbox, cb=keep)
        name = f"reader-{uuid.uuid4().hex}"
        waking = asyncio.create_task(wake_at_end(), name="reader-wake")
        try:
            batch = None if await self._create_consumer(name, sequence) else Batch([], caught_up=True)
            taken: list[Msg] = []
            delivered = outstanding = 0
            is_at_end = batch is not None
            while True:
                # Before the batch is yielded: the next one travels while the caller applies this one.
                while outstanding <= (0 if is_at_end else _OUTSTANDING - _PULL):
                    await self._pull(name, inbox)
                    outstanding += _PULL
                if batch is not None:
                    with self._spans(taken):
                        yield batch
                if not arrived:
                    try:
                        async with asyncio.timeout(_SILENCE_S):
                            await has_arrived.wait()
                    except TimeoutError:
                        raise ReadingInterrupted from None
                if ended.is_set():
                    raise ReadingInterrupted
                taken = arrived[:]
                arrived.clear()
                has_arrived.clear()
                batch, counted, released = self._sort(taken, delivered)
                delivered += counted
                outstanding -= counted + released
                if counted or batch.caught_up:
                    is_at_end = batch.caught_up
        finally:
            await end(waking)
            await _quietly(subscription.unsubscribe())
            await _quietly(self._bus.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}"))

    def _sort(self, taken: list[Msg], delivered: int) -> tuple[Batch, int, int]:
        """Return the batch, the number of its messages, and the number of messages that statuses released.

        Args:
            taken: Messages and statuses that have arrived.
            delivered: Number of messages before them.
        """
        messages = []
        counted = released = 0
        caught_up = False
        for message in taken:
            if message.reply:
                counted += 1
                sequence, pending = _position(message, expected=delivered + counted)
                event = self._genuine_event(message, sequence)
                if event is not None:
                    messages.append(StreamMessage(message.subject, sequence, event))
                caught_up = pending == 0
            else:
                released += _released(message)
                caught_up |= _is_heartbeat(message)
        return Batch(messages, caught_up, _origin(taken) if messages else 0), counted, released

    def _genuine_event(self, message: Msg, sequence: int) -> CloudEvent | None:
        """Return the event if it belongs to its subject; otherwise log it."""
        try:
            event = _decode_event(message.data)
            if is_genuine(event, message.subject):
                return event
        except (DecodeError, UnicodeDecodeError, RecursionError):
            pass
        _log.error("bus.event-not-genuine", stream=self._stream, sequence=sequence, subject=message.subject)
        return None

    async def _create_consumer(self, name: str, sequence: int) -> int:
        """Create a consumer of the messages after a position; return their number.

        Doubles the timeout after a few failures on a connection: while a cluster elects its leader, requests are lost.
        """
        if self._failed_on != self._bus.connections:
            self._failures, self._failed_on = 0, self._bus.connections
        config = ConsumerConfig(
            name=name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if sequence else DeliverPolicy.ALL,
            opt_start_seq=sequence + 1 if sequence else None,
            ack_policy=AckPolicy.NONE,
            filter_subjects=self._subjects,
            inactive_threshold=_CONSUMER_TTL_S,
            mem_storage=True,
            num_replicas=await replicas_of(self._bus, self._stream),
        )
        timeout_s = min(_CREATION_S * 2 ** max(0, self._failures - _LOST_REQUESTS), _MAX_CREATION_S)
        self._failures += 1
        info = await self._bus.jetstream().add_consumer(self._stream, config, timeout=timeout_s)
        self._failures = 0
        return info.num_pending or 0

    async def _pull(self, name: str, inbox: str) -> None:
        request = {
            "batch": _PULL,
            "max_bytes": _PULL_BYTES,
            "expires": _EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": _HEARTBEAT_S * 1_000_000_000,
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        await self._bus.client.publish(subject, json.encode(request), reply=inbox)


def _position(message: Msg, *, expected: int) -> tuple[int, int]:
    """Return the position of a message and the number of messages after it, both from its reply subject."""
    # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
    _, sequence, consumer_sequence, _, pending = message.reply.rsplit(".", 4)
    if int(consumer_sequence) != expected:
        raise ReadingInterrupted
    return int(sequence), int(pending)


def _origin(taken: list[Msg]) -> int:
    """Return the position of the last message in the stream that it was copied from; 0 if it was not."""
    last = next(message for message in reversed(taken) if message.reply)
    _, _, rest = (last.headers or {}).get(_ORIGIN_HEADER, "").partition(" ")  # <stream> <sequence> <filter> …
    sequence, _, _ = rest.partition(" ")
    return int(sequence or 0)


def _is_heartbeat(message: Msg) -> bool:
    """Return whether a status is an idle heartbeat."""
    return (message.headers or {}).get("Status") == "100"


def _released(message: Msg) -> int:
    """Return how many requested messages a status releases; 0 for a heartbeat."""
    if _is_heartbeat(message):
        return 0
    headers = message.headers or {}
    if headers.get("Status") in {"404", "408", "409"} and "Nats-Pending-Messages" in headers:
        return int(headers["Nats-Pending-Messages"])
    raise ReadingInterrupted


def _no_spans(_: list[Msg]) -> AbstractContextManager[object]:
    return nullcontext()


def _spans_of(reader: str, messages: list[Msg]) -> AbstractContextManager[object]:
    """Return the spans of processing these messages, in the traces of the requests that they come from.

    The stream keeps messages and their headers for good; old ones, which a new replica loads, get no span.
    """
    since = datetime.now(UTC) - _TRACED_FOR
    parents = ((message, (message.headers or {}).get(TRACEPARENT_HEADER)) for message in messages if message.reply)
    recent = [parent for message, parent in parents if parent is not None and message.metadata.timestamp > since]
    return tracing().spans("consumer", [(reader, parent) for parent in recent])


async def _quietly(action: Awaitable[object]) -> None:
    """Clean up on a connection that may be gone; the server removes the consumer by itself."""
    try:
        await action
    except (NatsError, OSError):
        return
