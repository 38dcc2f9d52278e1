"""A receiver of OTLP over HTTP (OpenTelemetry Protocol 1.x), which keeps the spans that services export."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class ReceivedSpan(NamedTuple):
    """A span of a service.

    Attributes:
        parent_id: Of the span that it belongs to; empty for the first of a trace.
        kind: ``SERVER``, ``CLIENT``, ``PRODUCER`` or ``CONSUMER``.
    """

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str | int]


class TraceReceiver:
    """A context manager that listens on ``url``, at a free port unless one is given."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.spans: list[ReceivedSpan] = []
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of_trace(self, trace_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    spans.extend(_received(body))
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler


def _received(body: bytes) -> list[ReceivedSpan]:
    received = []
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        names = {each.key: each.value.string_value for each in resource.resource.attributes}
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            attributes = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
            kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
            ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
            received.append(ReceivedSpan(names["service.name"], span.name, kind, *ids, attributes))
    return received
