"""Shared by all edges in Kubernetes: the table, without a route for "everything else", and the Services.

A Kubernetes edge routes ``/api/*`` to management-service and no other unlisted path, because management-service serves
nothing else that is not listed. So the paths that every service has (``/health``,
``/metrics``, ``/schema``) are not routed.
"""

from typing import Final

from identity_common.http.routing import FALLBACK, ROUTES, Service

TABLE: Final[tuple[tuple[str, Service], ...]] = (*ROUTES, ("/api/*", FALLBACK))
PORT: Final = 8000


def header(form: str) -> str:
    """Return the first line of a rendered file."""
    return f"# Printed by `python -m provision edge --form {form}`, from the routing table; a test compares.\n"
