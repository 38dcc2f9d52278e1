"""Reads a stream in order from a position, in batches, without losing a message.

A pull consumer with acknowledgements off and a few pull requests outstanding: a push consumer would cut a slow reader
off. Every gap, silence and reconnection ends the reading with ``ReadingInterrupted``; the caller reads on from the
position up to which it has applied what it got. A message that is no event of the source whose subject it came on is
left out and reported: the bus should not have carried it.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

from msgspec import DecodeError, json
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from identity_common.bus.connection import Bus
from identity_common.bus.streams import ensure_streams
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import is_genuine
from stead.event_types import CloudEvent

_log = get_logger(__name__)

_PULL: Final = 500
_OUTSTANDING: Final = 3 * _PULL
_PULL_BYTES: Final = 16 * 1024 * 1024
_EXPIRES_S: Final = 30
_HEARTBEAT_S: Final = 2
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S
_CONSUMER_KEPT_S: Final = 60.0
_CREATION_S: Final = 2.0
_LONGEST_CREATION_S: Final = 30.0
"""Where a stream holds millions of subjects, a server that is busy counts for seconds what a new consumer will get."""

_decode_event = json.Decoder(CloudEvent).decode


class ReadingInterrupted(Exception):  # noqa: N818 - not an error: read on from the last position
    """The consumer is gone, silent or skipped something."""


class StreamMessage(NamedTuple):
    """One message of a stream.

    Attributes:
        subject: The subject it was published on.
        sequence: Its position in the stream.
        event: What it says; of the source, the tenant and the aggregate whose subject it came on.
    """

    subject: str
    sequence: int
    event: CloudEvent


class Batch(NamedTuple):
    """Messages in the order of the stream.

    Attributes:
        messages: None at all when only a heartbeat was heard.
        caught_up: Nothing is behind these that was in the stream when they, or the heartbeat, were sent.
    """

    messages: list[StreamMessage]
    caught_up: bool


class StreamReader:
    """Reads the messages of one stream that match the given subjects."""

    def __init__(self, bus: Bus, stream: str, subjects: Sequence[str]) -> None:
        self._bus = bus
        self._stream = stream
        self._subjects = list(subjects)
        self._creation_s = _CREATION_S

    async def identity(self) -> str:
        """Return which incarnation of the stream this is: sequences of different ones say nothing about each other.

        A missing stream is created first: whichever service comes first does so.

        Raises:
            nats.errors.Error: When the server does not answer.
        """
        await ensure_streams(self._bus)
        response = await self._bus.client.request(f"$JS.API.STREAM.INFO.{self._stream}", b"", timeout=2)
        info = json.decode(response.data)
        if "error" in info:
            raise NatsError(info["error"].get("description", "stream info failed"))
        return str(info["created"])

    async def read_after(self, sequence: int) -> AsyncGenerator[Batch, None]:
        """Yield batches of everything behind a position, then of everything new; with nothing new a heartbeat.

        Args:
            sequence: The last position that the caller has; 0 reads from the beginning.

        Raises:
            ReadingInterrupted: Read on from the last applied position.
            nats.errors.Error: The server did not answer.
        """
        connection = self._bus.connections
        inbox = self._bus.client.new_inbox()
        arrived: list[Msg] = []
        something = asyncio.Event()

        async def keep(message: Msg) -> None:
            arrived.append(message)
            something.set()

        subscription = await self._bus.client.subscribe(inbox, cb=keep)
        name = f"reader-{uuid.uuid4().hex}"
        try:
            batch = None if await self._create_consumer(name, sequence) else Batch([], caught_up=True)
            delivered = outstanding = 0
            while True:
                # Before the batch is handed over: while the caller applies it, the next one is on its way.
                while outstanding <= _OUTSTANDING - _PULL:
                    await self._pull(name, inbox)
                    outstanding += _PULL
                if batch is not None:
                    yield batch
                if not arrived:
                    try:
                        async with asyncio.timeout(_SILENCE_S):  # wait_for of 3.11 may lose a cancellation
                            await something.wait()
                    except TimeoutError:
                        raise ReadingInterrupted from None
                if connection != self._bus.connections:
                    raise ReadingInterrupted
                taken = arrived[:]
                arrived.clear()
                something.clear()
                batch, counted, released = self._sort(taken, delivered)
                delivered += counted
                outstanding -= counted + released
        finally:
            await _quietly(subscription.unsubscribe())
            await _quietly(self._bus.client.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}"))

    def _sort(self, taken: list[Msg], delivered: int) -> tuple[Batch, int, int]:
        """Return the batch in what has arrived, how many messages that were, and what statuses take off the requests.

        Args:
            taken: Messages and statuses.
            delivered: How many messages came before.
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
        return Batch(messages, caught_up), counted, released

    def _genuine_event(self, message: Msg, sequence: int) -> CloudEvent | None:
        """Return the event, if it is of the source whose subject it came on; report it if not."""
        try:
            event = _decode_event(message.data)
            if is_genuine(event, message.subject):
                return event
        except (DecodeError, UnicodeDecodeError, RecursionError):
            pass
        _log.error("bus.event-not-genuine", stream=self._stream, sequence=sequence, subject=message.subject)
        return None

    async def _create_consumer(self, name: str, sequence: int) -> int:
        """Create a consumer of everything behind a position; return how many messages that is.

        Whoever was not answered in time waits longer the next time.
        """
        config = ConsumerConfig(
            name=name,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if sequence else DeliverPolicy.ALL,
            opt_start_seq=sequence + 1 if sequence else None,
            ack_policy=AckPolicy.NONE,
            filter_subjects=self._subjects,
            inactive_threshold=_CONSUMER_KEPT_S,
            mem_storage=True,
            num_replicas=1,
        )
        timeout_s, self._creation_s = self._creation_s, min(2 * self._creation_s, _LONGEST_CREATION_S)
        info = await self._bus.jetstream().add_consumer(self._stream, config, timeout=timeout_s)
        self._creation_s = _CREATION_S
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
    """Return the message's place in the stream and how many are behind it; the reply subject carries both."""
    # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
    _, sequence, consumer_sequence, _, pending = message.reply.rsplit(".", 4)
    if int(consumer_sequence) != expected:
        raise ReadingInterrupted
    return int(sequence), int(pending)


def _is_heartbeat(message: Msg) -> bool:
    """Return whether the server says that it has nothing to send."""
    return (message.headers or {}).get("Status") == "100"


def _released(message: Msg) -> int:
    """Return how many messages a status takes off what was asked for; a heartbeat none."""
    if _is_heartbeat(message):
        return 0
    headers = message.headers or {}
    if headers.get("Status") in {"404", "408", "409"} and "Nats-Pending-Messages" in headers:
        return int(headers["Nats-Pending-Messages"])
    raise ReadingInterrupted


async def _quietly(action: object) -> None:
    """Tidy up on a connection that may be gone: the server forgets the consumer by itself."""
    try:
        await action  # type: ignore[misc]
    except (NatsError, OSError):
        return
