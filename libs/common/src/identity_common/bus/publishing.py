"""Publishing many messages in order, without waiting in between, until the stream has acknowledged each of them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

import msgspec
from nats.aio.msg import Msg
from nats.errors import ConnectionReconnectingError
from nats.errors import Error as NatsError
from nats.js.api import Header

from identity_common.bus.connection import Bus

_MSG_ID: Final = Header.MSG_ID.value
_LOOK_S: Final = 0.25


class Outgoing(NamedTuple):
    """A message for a stream.

    Attributes:
        id: By which the stream drops a repetition.
    """

    subject: str
    id: str
    payload: bytes


class _Acknowledgement(msgspec.Struct):
    """What the stream answers: where it has stored the message, or why it has not."""

    seq: int = 0
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Acknowledgement).decode


class NotAcknowledgedError(NatsError):
    """The stream refused a message, or nobody was there to take it: publish again, with the same ids."""


@contextlib.asynccontextmanager
async def publisher_on(bus: Bus) -> AsyncGenerator["Publisher", None]:
    """Yield a publisher that hears acknowledgements until the body ends, or the connection is another one.

    Raises:
        nats.errors.Error: There is no connection.
    """
    publisher = Publisher(bus)
    subscription = await bus.client.subscribe(f"{publisher.inbox}.*.*", cb=publisher.take)
    try:
        yield publisher
    finally:
        with contextlib.suppress(NatsError, OSError):  # the connection is gone, and the subscription with it
            await subscription.unsubscribe()


class Publisher:
    """Publishes on a service's connection; one batch at a time.

    A future for each message would cost more than the message. Every message has a reply subject of its own below one
    subscription, and all that is kept of those under way is a set of these.

    A connection that is made again by itself first sends what it had kept. Were that the end of a batch whose beginning
    is lost, it would be stored before the beginning, which is published again behind it: out of order, for good. A
    batch is therefore handed to the connection in one turn of the event loop, and must be small enough for that: the
    connection then sends all of it or nothing.

    Attributes:
        inbox: What the subjects of the acknowledgements begin with.
    """

    def __init__(self, bus: Bus) -> None:
        self.inbox = bus.client.new_inbox()
        self._bus = bus
        self._connection = bus.connections
        self._batch = 0
        self._missing: set[str] = set()
        self._done: asyncio.Future[None] | None = None

    async def publish(self, messages: Sequence[Outgoing], *, timeout_s: float) -> None:
        """Publish in order; return when every message is acknowledged.

        Args:
            messages: In the order in which they shall stand in the stream; 1 MiB together at most, unless it is one.
            timeout_s: How long to wait for the acknowledgements.

        Raises:
            NatsError: A message was refused or could not be sent, or the connection broke meanwhile.
            TimeoutError: An acknowledgement is missing.
        """
        if not messages:
            return
        self._batch += 1  # what still comes in for an earlier batch is not counted
        replies = [f"{self.inbox}.{self._batch}.{number}" for number in range(len(messages))]
        self._missing = set(replies)
        done = self._done = asyncio.get_running_loop().create_future()
        publish = self._bus.client.publish
        try:
            for message, reply in zip(messages, replies, strict=True):
                await publish(message.subject, message.payload, reply=reply, headers={_MSG_ID: message.id})
            await self._wait(done, timeout_s)
        finally:
            self._done = None
            if done.done() and not done.cancelled():
                done.exception()  # publishing may have failed first

    async def take(self, message: Msg) -> None:
        """Take an acknowledgement."""
        done = self._done
        if done is None or done.done() or message.subject not in self._missing:
            return
        if not _is_stored(message.data):
            done.set_exception(NotAcknowledgedError())
            return
        self._missing.discard(message.subject)
        if not self._missing:
            done.set_result(None)

    async def _wait(self, done: asyncio.Future[None], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not done.done():
                if self._bus.connections != self._connection:
                    raise ConnectionReconnectingError
                await asyncio.wait((done,), timeout=_LOOK_S)
        done.result()


def _is_stored(answer: bytes) -> bool:
    try:
        acknowledgement = _decode(answer)
    except msgspec.MsgspecError:
        return False  # nobody was there
    return acknowledgement.error is None and acknowledgement.seq > 0
