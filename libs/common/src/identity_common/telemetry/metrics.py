"""Prometheus metrics: one registry for each app, so that three apps fit in one process."""

from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

NAMESPACE: Final = "stead"
"""Prefix of every metric."""

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class HttpMetrics:
    """Counts and times requests by method, route template and status; never by path, which contains ids."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "http_requests",
            "Number of HTTP requests answered.",
            ("method", "route", "status"),
            namespace=NAMESPACE,
            registry=registry,
        )
        self._seconds = Histogram(
            "http_request_seconds",
            "Time from the request to the end of the response, in seconds.",
            ("method", "route"),
            namespace=NAMESPACE,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record one response."""
        key = (method, route, status)
        series = self._series.get(key)
        if series is None:
            counter = self._requests.labels(method, route, str(status))
            series = self._series[key] = (counter, self._seconds.labels(method, route))
        series[0].inc()
        series[1].observe(seconds)


@get("/metrics", include_in_schema=False, sync_to_thread=False)
def metrics(metrics_registry: NamedDependency[CollectorRegistry]) -> Response[bytes]:
    """Return the current values in Prometheus' text format."""
    return Response(generate_latest(metrics_registry), media_type=CONTENT_TYPE_LATEST)
