"""Prometheus metrics: one registry an app, so that three apps fit in one process."""

from time import perf_counter
from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from identity_common.logs import get_logger

_log = get_logger(__name__)
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class HttpMetrics:
    """Counts and times requests by method, route template and status; never by path, which would carry ids."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "http_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "http_request_seconds", "Time to answer.", ("method", "route"), buckets=_BUCKETS, registry=registry
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        key = (method, route, status)
        series = self._series.get(key)
        if series is None:
            counter = self._requests.labels(method, route, str(status))
            series = self._series[key] = (counter, self._seconds.labels(method, route))
        series[0].inc()
        series[1].observe(seconds)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """Return the app with every HTTP request counted; an answer of 500 and above is logged as well."""

        async def measured(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":  # type: ignore[comparison-overlap]
                await app(scope, receive, send)
                return
            method = str(scope["method"])  # type: ignore[typeddict-item]
            started = perf_counter()
            status = 500

            async def remember_status(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, remember_status)
            finally:
                seconds = perf_counter() - started
                route = scope.get("path_template") or "unmatched"
                self.observe(method, route, status, seconds)
                if status >= 500 and not route.startswith("/health/"):
                    _log.warning("request.answered", method=method, route=route, status=status)

        return measured


@get("/metrics", include_in_schema=False, sync_to_thread=False)
def metrics(metrics_registry: NamedDependency[CollectorRegistry]) -> Response[bytes]:
    """Answer the current values in Prometheus' text format."""
    return Response(generate_latest(metrics_registry), media_type=CONTENT_TYPE_LATEST)
