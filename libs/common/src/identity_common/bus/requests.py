"""Requests over NATS between services: the request id and the trace travel in headers, not in the message."""

from collections.abc import Generator
from contextlib import contextmanager

from nats.aio.msg import Msg

from identity_common.bus.connection import Bus
from identity_common.telemetry.logs import REQUEST_ID
from identity_common.telemetry.observation import is_well_formed
from identity_common.telemetry.outgoing import REQUEST_ID_HEADER, outgoing_request
from identity_common.telemetry.traceparent import HEADER as TRACEPARENT_HEADER
from identity_common.telemetry.traceparent import TRACEPARENT
from identity_common.telemetry.tracing import tracing


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


@contextmanager
def answering(message: Msg, *, name: str) -> Generator[None]:
    """Run the body as a part of the request that the message belongs to: its log lines have that id.

    The body must be a task of its own, whose context ends with it.
    """
    headers = message.headers or {}
    request_id = headers.get(REQUEST_ID_HEADER, "")
    if is_well_formed(request_id.encode()):
        REQUEST_ID.set(request_id)
    with tracing().spans("server", [(name, headers.get(TRACEPARENT_HEADER))]) as (traceparent,):
        TRACEPARENT.set(traceparent)
        yield
