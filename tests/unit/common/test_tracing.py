"""When traces are on, by the standard variables of OpenTelemetry."""

import subprocess
import sys

import pytest
from litestar.types import Receive, Scope, Send

from identity_common.telemetry.tracing import InvalidTracingError, requested_exporter, tracing

ADDRESS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.mark.parametrize(
    ("environment", "exporter"),
    [
        ({}, None),
        ({"OTEL_SERVICE_NAME": "tokens", "OTEL_TRACES_SAMPLER": "always_on"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        (ADDRESS, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        (ADDRESS | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (ADDRESS | {"OTEL_SDK_DISABLED": "True"}, None),
    ],
)
def test_traces_are_on_if_an_exporter_or_its_address_is_named(
    environment: dict[str, str], exporter: str | None
) -> None:
    assert requested_exporter(environment) == exporter


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_TRACES_EXPORTER": "otlp,console"}, "OTEL_TRACES_EXPORTER"),
        (ADDRESS | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
    ],
)
def test_what_is_not_supported_is_refused_by_the_name_of_its_variable(
    environment: dict[str, str], variable: str
) -> None:
    with pytest.raises(InvalidTracingError, match=variable):
        requested_exporter(environment)


def test_without_traces_nothing_is_around_a_request() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Answer nothing."""

    assert tracing().around_requests(app) is app
    assert not tracing().lifespan


@pytest.mark.heavy
@pytest.mark.parametrize("prepare", ["", "sys.modules['opentelemetry'] = None; "], ids=["installed", "not installed"])
def test_nothing_that_prints_reports_metrics_or_makes_spans_is_imported(prepare: str) -> None:
    """Where they are installed, structlog and redis-py would import the former by themselves: megabytes."""
    script = f"import sys; {prepare}import all_in_one.__main__, all_in_one.stack; print(*sys.modules)"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    unwanted = ("opentelemetry.sdk.", "opentelemetry.exporter", "google", "requests", "rich", "pygments")
    assert [name for name in finished.stdout.split() if name.startswith(unwanted)] == []
