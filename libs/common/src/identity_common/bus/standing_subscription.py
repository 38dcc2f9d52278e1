"""A subscription that outlasts the connection: it is made again on each one."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

_RETRY_S: Final = 0.25


class StandingSubscription:
    """Calls back for each message on a subject, until ``stop``; messages that arrive between connections are lost.

    Args:
        bus: The connection.
        subject: The subject.
        callback: Called for one message after the other.
        queue: Name of a group of subscribers, of which one gets each message.
        name: Of the task.
    """

    def __init__(
        self, bus: Bus, subject: str, callback: Callable[[Msg], Awaitable[None]], *, queue: str = "", name: str
    ) -> None:
        self._bus = bus
        self._subject = subject
        self._callback = callback
        self._queue = queue
        self._loop = BackgroundLoop(
            self._listen,
            name=name,
            pause_s=_RETRY_S,
            log=_log.bind(subject=subject),
            failed="subscription.failed",
            interrupted="subscription.interrupted",
            expected=(NatsError, OSError),
        )

    def start(self) -> None:
        """Subscribe in the background, once the bus is connected."""
        self._loop.start()

    async def stop(self) -> None:
        """Unsubscribe."""
        await self._loop.stop()

    async def _listen(self) -> None:
        """Subscribe, and return when the connection has ended."""
        await self._bus.connected()
        ended = self._bus.ended
        subscription = await self._bus.client.subscribe(self._subject, queue=self._queue, cb=self._callback)
        try:
            await ended.wait()
        finally:
            with suppress(NatsError, OSError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()
