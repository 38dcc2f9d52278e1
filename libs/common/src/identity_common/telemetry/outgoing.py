"""Context that a request to another service inherits: the request id and the trace."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from identity_common.telemetry.logs import REQUEST_ID
from identity_common.telemetry.traceparent import HEADER as TRACEPARENT_HEADER
from identity_common.telemetry.traceparent import TRACEPARENT
from identity_common.telemetry.tracing import tracing

REQUEST_ID_HEADER: Final = "X-Request-Id"
"""Header of HTTP, and of NATS, where names are case-sensitive."""


@contextmanager
def outgoing_request(name: str) -> Generator[Mapping[str, str]]:
    """Yield the headers of a request, whose span begins and ends with the body of ``with``.

    Args:
        name: Of the span.
    """
    with tracing().spans("client", [(name, TRACEPARENT.get())]) as (traceparent,):
        headers = {REQUEST_ID_HEADER: REQUEST_ID.get(), TRACEPARENT_HEADER: traceparent}
        yield {key: value for key, value in headers.items() if value is not None}
