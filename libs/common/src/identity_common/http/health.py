"""Liveness and readiness of one service: ``/health/live`` and ``/health/ready``.

Live means that the process answers. Ready means that it has loaded what it needs *once*; stores that are down later
are metrics and alerts, because taking every replica out of the load balancer would turn a slow store into an outage.
"""

from collections.abc import Callable

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency


class Health(msgspec.Struct, frozen=True):
    """The body of both answers.

    Attributes:
        status: ``ok`` or ``starting``.
    """

    status: str


class Readiness:
    """Asks every part that must have started whether it has."""

    def __init__(self, *conditions: Callable[[], bool]) -> None:
        self._conditions = conditions

    def __call__(self) -> bool:
        """Return whether the service may be sent requests."""
        return all(condition() for condition in self._conditions)


@get("/health/live", include_in_schema=False, sync_to_thread=False)
def live() -> Health:
    """Answer 200 while the process runs."""
    return Health(status="ok")


@get("/health/ready", include_in_schema=False, sync_to_thread=False)
def ready(readiness: NamedDependency[Readiness]) -> Response[Health]:
    """Answer 200 once the service has started, 503 before."""
    return Response(Health(status="ok")) if readiness() else Response(Health(status="starting"), status_code=503)
