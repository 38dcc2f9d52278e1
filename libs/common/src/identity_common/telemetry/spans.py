"""The spans of OpenTelemetry; imported only where traces are on.

A span carries ids, templates and codes, as a log line does: never a path, query, header, body or address, which may
hold secrets and personal data. That rules out the ready-made instrumentation of ASGI.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from litestar import Litestar
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from identity_common.telemetry.logs import REQUEST_ID
from identity_common.telemetry.traceparent import HEADER, TRACEPARENT, Kind

_KINDS: Final[dict[Kind, SpanKind]] = {
    "client": SpanKind.CLIENT,
    "server": SpanKind.SERVER,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_PROPAGATED: Final = (b"traceparent", b"tracestate")
_UNTRACED: Final = ("/health/", "/metrics")
_FLUSH_MS: Final = 3000
_propagator: Final = TraceContextTextMapPropagator()


class Spans:
    """Makes spans and exports them in batches, in a thread."""

    is_on = True

    def __init__(self, exporter: str, *, service: str) -> None:
        named = Resource({SERVICE_NAME: service}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=Resource.create().merge(named))
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter() if exporter == "otlp" else ConsoleSpanExporter())
        )
        self._tracer = self._provider.get_tracer("stead")
        self.lifespan = (self._sent_at_the_end,)

    def around_requests(self, app: ASGIApp) -> ASGIApp:
        """Return the app with a span for each request except probes and scrapes."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"].startswith(_UNTRACED):  # type: ignore[comparison-overlap]
                await app(scope, receive, send)
                return
            method = str(scope["method"])  # type: ignore[typeddict-item]
            carrier = {
                name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _PROPAGATED
            }
            span = self._tracer.start_span(
                method, _propagator.extract(carrier, Context()), SpanKind.SERVER, {"http.request.method": method}
            )
            status = 500

            async def observed_send(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            before = TRACEPARENT.set(_traceparent(span))
            try:
                await app(scope, receive, observed_send)
            finally:
                TRACEPARENT.reset(before)
                _end_request(span, method, scope.get("path_template") or "unmatched", status)

        return traced

    @contextmanager
    def spans(self, kind: Kind, work: Sequence[tuple[str, str | None]]) -> Generator[Sequence[str | None]]:
        """Begin and end the spans of a piece of work."""
        begun = [None if parent is None else self._begin(kind, name, parent) for name, parent in work]
        try:
            yield [None if span is None else _traceparent(span) for span in begun]
        except Exception as error:
            for span in filter(None, begun):
                span.set_status(StatusCode.ERROR, type(error).__name__)  # a message may quote values
            raise
        finally:
            for span in filter(None, begun):
                span.end()

    def _begin(self, kind: Kind, name: str, parent: str) -> Span:
        return self._tracer.start_span(name, _propagator.extract({HEADER: parent}, Context()), _KINDS[kind])

    @asynccontextmanager
    async def _sent_at_the_end(self, _: Litestar) -> AsyncGenerator[None, None]:
        """Export the remaining spans when an app stops: a signal may end the process without its exit handlers."""
        yield
        await asyncio.to_thread(self._provider.force_flush, _FLUSH_MS)


def _traceparent(span: Span) -> str:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, set_span_in_context(span, Context()))
    return carrier[HEADER]


def _end_request(span: Span, method: str, route: str, status: int) -> None:
    span.update_name(f"{method} {route}")
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    span.set_attribute("stead.request_id", REQUEST_ID.get() or "")
    if status >= 500:
        span.set_status(StatusCode.ERROR)
    span.end()
