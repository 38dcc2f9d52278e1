"""Liveness and readiness of one service: ``/health/live`` and ``/health/ready``.

Live means that the process answers. Ready means that the service has *once* loaded what it needs. A store that fails
later is left to metrics and alerts: removing every replica from the load balancer would turn a slow store into an
outage.
"""

from collections.abc import Callable

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from identity_common.version import VERSION


class Health(msgspec.Struct, frozen=True):
    """The body of both responses.

    Attributes:
        status: ``ok`` or ``starting``.
        version: The version of the service.
    """

    status: str
    version: str = VERSION


class Readiness:
    """Whether every part of a service has started."""

    def __init__(self, *conditions: Callable[[], bool]) -> None:
        self._conditions = conditions

    def __call__(self) -> bool:
        """Return whether the service is ready for requests."""
        return all(condition() for condition in self._conditions)


@get("/health/live", include_in_schema=False, sync_to_thread=False)
def live() -> Health:
    """Return 200 while the process runs."""
    return Health(status="ok")


@get("/health/ready", include_in_schema=False, sync_to_thread=False)
def ready(readiness: NamedDependency[Readiness]) -> Response[Health]:
    """Return 200 once the service has started, 503 before."""
    return Response(Health(status="ok")) if readiness() else Response(Health(status="starting"), status_code=503)
