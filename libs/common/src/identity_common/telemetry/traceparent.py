"""Trace context of the current request, as the services propagate it (W3C Trace Context)."""

from contextvars import ContextVar
from typing import Final, Literal

TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("traceparent", default=None)
"""Value of the header for messages on behalf of the current request; None if it is not traced."""

HEADER: Final = "traceparent"
"""Header of HTTP and NATS (W3C Trace Context section 3.2)."""

Kind = Literal["client", "server", "producer", "consumer"]
"""Kind of a span: the role of the work between sender and receiver (``SpanKind`` of OpenTelemetry)."""
