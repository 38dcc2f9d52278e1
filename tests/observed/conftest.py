"""One deployment that is watched: its processes export traces, and Prometheus scrapes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from all_in_one.embedded import EmbeddedServers
from tests.support.processes import Deployment
from tests.support.trace_receiver import TraceReceiver


@pytest.fixture(scope="session")
def traces() -> Iterator[TraceReceiver]:
    with TraceReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def console_credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that the console reads its client from; it may be written at any time."""
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="session")
def deployment(
    tmp_path_factory: pytest.TempPathFactory, traces: TraceReceiver, console_credentials: Path
) -> Iterator[Deployment]:
    servers = EmbeddedServers(tmp_path_factory.mktemp("servers"), sync=False)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # milliseconds
        try:
            logs = tmp_path_factory.mktemp("logs")
            with Deployment(servers.start(), logs, console_credentials=console_credentials) as deployment:
                yield deployment
        finally:
            servers.delete()
