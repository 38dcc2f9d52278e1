"""Prometheus metrics: one registry for each app, so that all apps fit in one process."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from identity_common.version import VERSION

NAMESPACE: Final = "stead"
"""Prefix of every metric."""

_SAMPLE_TIMEOUT_S: Final = 1.0
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

disable_created_metrics()  # type: ignore[no-untyped-call]  # would add a series with the time of creation to each series


def gauge(registry: CollectorRegistry, name: str, description: str, *labels: str) -> Gauge:
    """Return a new gauge of an app."""
    return Gauge(name, description, labels, namespace=NAMESPACE, registry=registry)


def counter(registry: CollectorRegistry, name: str, description: str, *labels: str) -> Counter:
    """Return a new counter of an app."""
    return Counter(name, description, labels, namespace=NAMESPACE, registry=registry)


def measure_version(registry: CollectorRegistry, *, service: str) -> None:
    """Add the series whose labels are the service and its version, always 1."""
    gauge(registry, "build_info", "The version of the service.", "version", "service").labels(VERSION, service).set(1)


class Samples:
    """Gauges whose values are fetched, for example from the database, when the metrics are read."""

    def __init__(self) -> None:
        self._samples: list[tuple[Sequence[Gauge], Callable[[], Awaitable[Sequence[float]]], float]] = []

    def add(
        self,
        gauges: Sequence[Gauge],
        read: Callable[[], Awaitable[Sequence[float]]],
        *,
        otherwise: float = float("nan"),
    ) -> None:
        """Add gauges.

        Args:
            gauges: The gauges; of one with labels, a single series.
            read: Returns their values.
            otherwise: The value of each gauge if ``read`` fails or takes longer than a second.
        """
        self._samples.append((gauges, read, otherwise))

    async def take(self) -> None:
        """Set all gauges."""
        await asyncio.gather(*(self._take(*sample) for sample in self._samples))

    @staticmethod
    async def _take(gauges: Sequence[Gauge], read: Callable[[], Awaitable[Sequence[float]]], otherwise: float) -> None:
        try:
            async with asyncio.timeout(_SAMPLE_TIMEOUT_S):
                values = await read()
        except Exception:  # noqa: BLE001 - the edge: whatever is broken, the other metrics are still readable
            values = [otherwise] * len(gauges)
        for each, value in zip(gauges, values, strict=True):
            each.set(value)


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


@get("/metrics", include_in_schema=False)
async def metrics(
    metrics_registry: NamedDependency[CollectorRegistry], metrics_samples: NamedDependency[Samples]
) -> Response[bytes]:
    """Return the current values in Prometheus' text format."""
    await metrics_samples.take()
    return Response(generate_latest(metrics_registry), media_type=CONTENT_TYPE_LATEST)
