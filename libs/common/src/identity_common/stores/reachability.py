"""The metric that tells whether each store answers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from identity_common.telemetry.metrics import Samples, gauge

Probe = Callable[[], Awaitable[Any]]
"""Returns if the store answers, and raises otherwise."""


def measure_reachability(registry: CollectorRegistry, samples: Samples, probes: Mapping[str, Probe]) -> None:
    """Add the metric to those of a service, with a series for each store."""
    reachable = gauge(registry, "store_reachable", "1 if the store answered within a second, otherwise 0.", "store")
    for store, probe in probes.items():
        samples.add([reachable.labels(store)], _answers(probe), otherwise=0.0)


def _answers(probe: Probe) -> Callable[[], Awaitable[list[float]]]:
    async def read() -> list[float]:
        await probe()
        return [1.0]

    return read
