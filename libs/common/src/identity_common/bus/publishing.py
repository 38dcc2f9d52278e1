"""Pipelined publishing: many messages in order, then one wait for the acknowledgements of the stream."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js.api import Header

from identity_common.bus.connection import Bus
from identity_common.telemetry.traceparent import HEADER as TRACEPARENT_HEADER

_MSG_ID: Final = Header.MSG_ID.value
_CHECK_S: Final = 0.25


class Outgoing(NamedTuple):
    """A message for a stream.

    Attributes:
        id: Message id, for deduplication in the stream.
        traceparent: Trace context of the change; None if it is not traced.
    """

    subject: str
    id: str
    payload: bytes
    traceparent: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the message."""
        if self.traceparent is None:
            return {_MSG_ID: self.id}
        return {_MSG_ID: self.id, TRACEPARENT_HEADER: self.traceparent}


class _Acknowledgement(msgspec.Struct):
    """The reply of the stream: the position of the message, or an error."""

    seq: int = 0
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Acknowledgement).decode


class NotAcknowledgedError(NatsError):
    """The stream refused a message, or does not exist: publish again with the same ids."""


@contextlib.asynccontextmanager
async def publisher_on(bus: Bus) -> AsyncGenerator["Publisher", None]:
    """Yield a publisher; it works on the current connection only.

    Raises:
        nats.errors.Error: The connection is down.
    """
    publisher = Publisher(bus.client)
    subscription = await publisher.client.subscribe(f"{publisher.inbox}.*.*", cb=publisher.take)
    try:
        yield publisher
    finally:
        with contextlib.suppress(NatsError, OSError):  # the connection is gone, and the subscription with it
            await subscription.unsubscribe()


class Publisher:
    """Publishes on a service's connection, one batch at a time.

    A future for each message would cost more than the message. Each message gets its own reply subject below one
    subscription, and the pending ones are kept as a set.

    If the end of a batch were sent on the next connection, and its beginning were lost, the end would be stored before
    the beginning, which is published again: out of order for good. So a batch is handed to one client, in one tick of
    the event loop, and must be small enough for that; the client then sends all of it or nothing.

    Attributes:
        client: The client of the connection.
        inbox: Prefix of the reply subjects.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.inbox = client.new_inbox()
        self._batch = 0
        self._pending: set[str] = set()
        self._sequences: dict[str, int] = {}
        self._done: asyncio.Future[None] | None = None

    async def publish(self, messages: Sequence[Outgoing], *, timeout_s: float) -> list[int]:
        """Publish in order; return the position of each message in the stream when every one is acknowledged.

        A message that was stored by an earlier attempt keeps its position.

        Args:
            messages: The batch, in the order of the stream; at most 1 MiB, unless it is a single message.
            timeout_s: Seconds to wait for the acknowledgements.

        Raises:
            NatsError: A message was refused or not sent, or the connection broke.
            TimeoutError: An acknowledgement is missing.
        """
        if not messages:
            return []
        self._batch += 1  # late replies to an earlier batch are ignored
        replies = [f"{self.inbox}.{self._batch}.{number}" for number in range(len(messages))]
        self._pending, self._sequences = set(replies), {}
        done = self._done = asyncio.get_running_loop().create_future()
        try:
            for message, reply in zip(messages, replies, strict=True):
                await self.client.publish(message.subject, message.payload, reply=reply, headers=message.headers)
            await self._wait(done, timeout_s)
        finally:
            self._done = None
            if done.done() and not done.cancelled():
                done.exception()  # marks it as retrieved: publishing may have failed first
        return [self._sequences[reply] for reply in replies]

    async def take(self, message: Msg) -> None:
        """Process an acknowledgement."""
        done = self._done
        if done is None or done.done() or message.subject not in self._pending:
            return
        sequence = _stored_at(message.data)
        if sequence is None:
            done.set_exception(NotAcknowledgedError())
            return
        self._sequences[message.subject] = sequence
        self._pending.discard(message.subject)
        if not self._pending:
            done.set_result(None)

    async def _wait(self, done: asyncio.Future[None], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not done.done():
                await asyncio.wait((done,), timeout=_CHECK_S)
                if self.client.is_closed:
                    raise ConnectionClosedError
        done.result()


def _stored_at(answer: bytes) -> int | None:
    """Return the position of the message in the stream; None if it is not stored."""
    try:
        acknowledgement = _decode(answer)
    except msgspec.MsgspecError:
        return None  # no responders: the stream does not exist, or has no leader
    return acknowledgement.seq if acknowledgement.error is None and acknowledgement.seq > 0 else None
