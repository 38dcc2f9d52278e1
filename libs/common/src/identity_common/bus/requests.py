"""Requests over NATS between services: the request id and the trace travel in headers, not in the message."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from identity_common.background import end
from identity_common.bus.connection import Bus
from identity_common.bus.standing_subscription import StandingSubscription
from identity_common.failures import log_fields
from identity_common.telemetry.logs import REQUEST_ID
from identity_common.telemetry.observation import is_well_formed
from identity_common.telemetry.outgoing import REQUEST_ID_HEADER, outgoing_request
from identity_common.telemetry.traceparent import HEADER as TRACEPARENT_HEADER
from identity_common.telemetry.traceparent import TRACEPARENT
from identity_common.telemetry.tracing import tracing

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


async def ask(bus: Bus, subject: str, payload: bytes, *, name: str, timeout_s: float) -> bytes:
    """Send a request on behalf of the current one; return the reply.

    Args:
        bus: The connection.
        subject: The subject, which belongs to no stream.
        payload: The message.
        name: Of the span: ``password-check``.
        timeout_s: Seconds to wait for the reply.

    Raises:
        nats.errors.Error, OSError, TimeoutError: There is no reply.
    """
    with outgoing_request(name) as headers:
        message = await bus.client.request(subject, payload, timeout=timeout_s, headers=dict(headers) or None)
    return message.data


class Responder:
    """Replies to the requests on a subject, each in its own task; one replica of the service replies to each.

    Args:
        bus: The connection.
        subject: The subject, which belongs to no stream.
        reply: Returns the reply to a request, or None to send none. Gets the request and when it arrived, in seconds
            of the monotonic clock.
        unavailable: Returns the reply to a request for which ``reply`` failed: the sender may try again.
        name: Of the spans and the tasks, and of the event ``<name>.unanswered``: ``password-check``.
        log: Receives a line for every request that failed.
        failed: Event of that line: a warning for an expected exception, an error with a traceback for any other.
        expected: Exceptions that an operator should know of but a developer need not, such as a store that is down.
        at_once: How many requests may be without a reply; others are answered with ``unavailable`` right away, since
            their senders would have given up before their turn.
    """

    def __init__(
        self,
        bus: Bus,
        subject: str,
        reply: Callable[[bytes, float], Awaitable[bytes | None]],
        *,
        unavailable: Callable[[bytes], bytes],
        name: str,
        log: "FilteringBoundLogger",
        failed: str,
        expected: tuple[type[Exception], ...],
        at_once: int,
    ) -> None:
        self._reply = reply
        self._unavailable = unavailable
        self._name = name
        self._log = log
        self._failed = failed
        self._expected = expected
        self._at_once = at_once
        self._subscription = StandingSubscription(bus, subject, self._take, queue=bus.service, name=f"{name}-subscribe")
        self._replying: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start replying once the bus is connected."""
        self._subscription.start()

    async def stop(self) -> None:
        """Stop replying; the senders of requests without a reply try again."""
        await self._subscription.stop()
        await end(*self._replying)

    async def _take(self, message: Msg) -> None:
        if len(self._replying) >= self._at_once:
            self._log.warning(self._failed, error="busy", count=self._at_once)
            await self._send(message, self._unavailable(message.data))
            return
        task = asyncio.create_task(self._respond(message, time.monotonic()), name=self._name)
        self._replying.add(task)
        task.add_done_callback(self._replying.discard)

    async def _respond(self, message: Msg, arrived: float) -> None:
        with _on_behalf_of_sender(message, name=self._name):
            reply = await self._reply_or_unavailable(message.data, arrived)
            if reply is not None:
                await self._send(message, reply)

    async def _send(self, message: Msg, reply: bytes) -> None:
        try:
            await message.respond(reply)
        except (NatsError, OSError) as error:
            self._log.warning(f"{self._name}.unanswered", error=type(error).__name__)

    async def _reply_or_unavailable(self, request: bytes, arrived: float) -> bytes | None:
        try:
            return await self._reply(request, arrived)
        except self._expected as error:
            self._log.warning(self._failed, **log_fields(error))
        except Exception as error:  # noqa: BLE001 - the edge: the sender is told to retry
            self._log.error(self._failed, **log_fields(error), exc_info=error)
        return self._unavailable(request)


@contextmanager
def _on_behalf_of_sender(message: Msg, *, name: str) -> Generator[None]:
    """Run the body as part of the request that the message belongs to, with its request id and trace.

    The body must run in its own task, whose context ends with it.
    """
    headers = message.headers or {}
    request_id = headers.get(REQUEST_ID_HEADER, "")
    if is_well_formed(request_id.encode()):
        REQUEST_ID.set(request_id)
    with tracing().spans("server", [(name, headers.get(TRACEPARENT_HEADER))]) as (traceparent,):
        TRACEPARENT.set(traceparent)
        yield
