"""Where the current request is in its trace, as the services hand it on (W3C Trace Context)."""

from contextvars import ContextVar
from typing import Final, Literal

TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("traceparent", default=None)
"""Value of the header for what the current request causes; None while nothing is traced."""

HEADER: Final = "traceparent"
"""Of HTTP and NATS (W3C Trace Context section 3.2)."""

Kind = Literal["client", "server", "producer", "consumer"]
"""The part that a piece of work has in the conversation."""
