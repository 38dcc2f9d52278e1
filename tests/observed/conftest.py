"""One deployment that is watched: its processes export traces, and Prometheus scrapes them."""

from collections.abc import Iterator

import pytest

from all_in_one.embedded import EmbeddedServers
from tests.support.processes import Deployment
from tests.support.trace_receiver import TraceReceiver


@pytest.fixture(scope="session")
def traces() -> Iterator[TraceReceiver]:
    with TraceReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory, traces: TraceReceiver) -> Iterator[Deployment]:
    servers = EmbeddedServers(tmp_path_factory.mktemp("servers"), sync=False)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # milliseconds
        try:
            with Deployment(servers.start(), tmp_path_factory.mktemp("logs")) as deployment:
                yield deployment
        finally:
            servers.delete()
