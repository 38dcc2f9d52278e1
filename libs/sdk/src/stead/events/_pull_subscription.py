"""A pull subscription to one consumer: pipelined requests, heartbeats, and detection of a dead consumer.

Requests are sent ahead, so that reading never waits for a round trip, and the server sends heartbeats. A push consumer
would disconnect a slow reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from stead.events._bus import STREAM, EventBus

_WINDOW: Final = 500
_BYTES: Final = 16 * 1024 * 1024
_EXPIRES_S: Final = 30
_HEARTBEAT_S: Final = 2
_SILENCE_S: Final = 2.5 * _HEARTBEAT_S


class Interrupted(Exception):  # noqa: N818 - not an error: resume from the last position
    """The consumer is gone or silent, or the connection was replaced."""


class PullSubscription:
    """Reads the messages of one consumer; an asynchronous context manager."""

    def __init__(self, bus: EventBus, consumer: str) -> None:
        self._bus = bus
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{consumer}"
        self._inbox = bus.client.new_inbox()
        self._arrived: deque[Msg] = deque()
        self._wakeup = asyncio.Event()
        self._interrupted = False
        self._outstanding = 0
        self._subscription: Subscription | None = None
        self._undo = ExitStack()

    async def __aenter__(self) -> Self:
        self._undo.enter_context(self._bus.on_interruption(self._interrupt))
        self._subscription = await self._bus.client.subscribe(self._inbox, cb=self._on_message)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._undo.close()
        if self._subscription is not None:
            try:
                await self._subscription.unsubscribe()
            except (NatsError, OSError):
                return  # the connection is gone, and the subscription with it

    async def next(self) -> Msg | None:
        """Return the next message; None on a heartbeat, which means that there is none yet.

        Raises:
            Interrupted: The subscription is dead.
            nats.errors.Error: The connection is closed.
        """
        while True:
            if self._outstanding <= _WINDOW // 2:
                await self._request()
            if not self._arrived:
                await self._wait()
            message = self._arrived.popleft()
            if message.reply:
                self._outstanding -= 1
                return message
            completed = _completed(message)
            self._outstanding -= completed
            if not completed:
                return None

    async def _request(self) -> None:
        request = {
            "batch": _WINDOW,
            "max_bytes": _BYTES,
            "expires": _EXPIRES_S * 1_000_000_000,
            "idle_heartbeat": _HEARTBEAT_S * 1_000_000_000,
        }
        await self._bus.client.publish(self._subject, msgspec.json.encode(request), reply=self._inbox)
        self._outstanding += _WINDOW

    async def _wait(self) -> None:
        self._wakeup.clear()
        if self._interrupted:
            raise Interrupted
        try:
            async with asyncio.timeout(_SILENCE_S):  # wait_for in Python 3.11 may lose a cancellation
                await self._wakeup.wait()
        except TimeoutError:
            raise Interrupted from None
        if not self._arrived:
            raise Interrupted

    async def _on_message(self, message: Msg) -> None:
        self._arrived.append(message)
        self._wakeup.set()

    def _interrupt(self) -> None:
        self._interrupted = True
        self._wakeup.set()


def _completed(status: Msg) -> int:
    """Return by how many messages a status message reduces those outstanding; 0 for a heartbeat.

    Raises:
        Interrupted: The status concerns the consumer, not a request.
    """
    headers = status.headers or {}
    if headers.get("Status") == "100":
        return 0
    if headers.get("Status") in {"404", "408", "409"} and "Nats-Pending-Messages" in headers:
        return int(headers["Nats-Pending-Messages"])
    raise Interrupted
