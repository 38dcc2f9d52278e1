"""Traces, which the standard variables of OpenTelemetry turn on: https://opentelemetry.io/docs/specs/otel/configuration/.

Without them no package of OpenTelemetry is imported, and nothing is added around requests. Owns the choice and what the
services call; ``spans`` makes the spans. A trace crosses services in the header ``traceparent`` (W3C Trace Context) of
HTTP and NATS; the outbox stores it between a change and its publication.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Final, Protocol

from litestar import Litestar
from litestar.types import ASGIApp

from identity_common.telemetry.traceparent import Kind

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[None]]

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OUR_PROTOCOL: Final = "http/protobuf"
_EXPORTERS: Final = ("otlp", "console")


class InvalidTracingError(Exception):
    """A variable requests an unsupported option; ``str()`` names the variable."""


class Tracing(Protocol):
    """Interface to tracing, on or off."""

    def around_requests(self, app: ASGIApp) -> ASGIApp:
        """Return the app with a span for each request."""

    def spans(self, kind: Kind, work: Sequence[tuple[str, str | None]]) -> AbstractContextManager[Sequence[str | None]]:
        """Return the spans of a piece of work, which begin and end with the body of ``with``.

        Args:
            kind: Kind of the spans.
            work: The name of each span and the traceparent of its parent; without a parent there is no span.

        Returns:
            The traceparent to propagate for each: that of its span, or None.
        """

    @property
    def is_on(self) -> bool:
        """Whether spans are made."""

    @property
    def lifespan(self) -> Sequence[Lifespan]:
        """Flushes the last spans when an app stops."""


class _Off:
    """No spans; the trace context of others is passed on."""

    is_on = False
    lifespan: Sequence[Lifespan] = ()

    def around_requests(self, app: ASGIApp) -> ASGIApp:
        return app

    def spans(self, kind: Kind, work: Sequence[tuple[str, str | None]]) -> AbstractContextManager[Sequence[str | None]]:
        del kind
        return nullcontext([parent for _, parent in work])


_chosen: Tracing = _Off()


def tracing() -> Tracing:
    """Return the tracing of this process, which is final once an app has been built."""
    return _chosen


def start_tracing(environment: Mapping[str, str], *, service: str) -> None:
    """Turn traces on if the environment asks for them; before the app is built, once for each process.

    Args:
        environment: ``OTEL_…``; other settings of exporter, sampler and batches are read by OpenTelemetry itself.
        service: The name of the service unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` names another.

    Raises:
        InvalidTracingError: The exporter or protocol is not supported, or the packages are not installed.
    """
    exporter = requested_exporter(environment)
    if exporter is not None:
        from identity_common.telemetry.spans import Spans  # noqa: PLC0415 - a part of the distribution that may be absent

        global _chosen  # noqa: PLW0603 - one exporter for each process, as for logs
        _chosen = Spans(exporter, service=service)


def requested_exporter(environment: Mapping[str, str]) -> str | None:
    """Return ``otlp`` or ``console``; None if traces are off.

    They are on if an exporter is named, or an address to export to.

    Raises:
        InvalidTracingError: The exporter or protocol is not supported, or the packages are not installed.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    default = "otlp" if any(environment.get(name) for name in _ENDPOINTS) else "none"
    exporter = environment.get("OTEL_TRACES_EXPORTER") or default
    if exporter == "none":
        return None
    if exporter not in _EXPORTERS:
        raise InvalidTracingError("OTEL_TRACES_EXPORTER: must be otlp, console or none")
    if exporter == "otlp":
        for name in _PROTOCOLS:
            if environment.get(name, _OUR_PROTOCOL) not in ("", _OUR_PROTOCOL):
                raise InvalidTracingError(f"{name}: must be {_OUR_PROTOCOL}")
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise InvalidTracingError("OTEL_…: traces need the packages of the extra `tracing`")
    return exporter
