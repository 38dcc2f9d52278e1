"""The routing table of the edge: which service serves a path.

nginx, the HTTPRoute and the embedded dispatcher implement it. A pattern is exact (``/consent``), a prefix (``/oidc/*``:
the path and everything below it), or has wildcards for one segment (``/api/users/{}/organizations``). If several match,
the first one decides; it is also the longest, by which edges in Kubernetes decide. All other paths belong to
management-service, except those that every service has and that are not routed.
"""

import re
from typing import Final, Literal

Service = Literal["management", "token", "template", "console"]

ROUTES: Final[tuple[tuple[str, Service], ...]] = (
    ("/oidc/me/impersonations/*", "management"),
    ("/oidc/*", "token"),
    ("/.well-known/*", "token"),
    ("/sign-in/*", "token"),
    ("/consent/*", "token"),
    ("/api/configs/oidc/*", "token"),
    ("/api/users/{}/consents/*", "token"),
    ("/api/users/{}/sessions/*", "token"),
    ("/api/my-account/consents/*", "token"),
    ("/api/my-account/sessions/*", "token"),
    ("/api/organization-scopes/*", "template"),
    ("/api/organization-roles/*", "template"),
    ("/api/organization-template/*", "template"),
    ("/api/organization-invitations/*", "template"),
    ("/api/organizations/*", "template"),
    ("/api/users/{}/organizations", "template"),
    ("/api/applications/{}/organizations", "template"),
    ("/console/*", "console"),
    ("/account/*", "console"),
)
FALLBACK: Final[Service] = "management"
NOT_ROUTED: Final = ("/health/*", "/metrics/*", "/schema/*")


def process_of(service: Service) -> str:
    """Return the name of a service's process, image and host."""
    return service if service == "console" else f"{service}-service"


def expression(pattern: str) -> str:
    """Return a pattern as a regular expression, which must match the whole path."""
    below = pattern.endswith("/*")
    path = re.escape(pattern.removesuffix("/*")).replace(r"\{\}", "[^/]+")
    return path + ("(?:/.*)?" if below else "/?")


_SERVICES: Final = [service for _, service in ROUTES]
_TABLE: Final = re.compile("|".join(f"({expression(pattern)})" for pattern, _ in ROUTES), re.DOTALL)
_HIDDEN: Final = re.compile("|".join(expression(pattern) for pattern in NOT_ROUTED), re.DOTALL)


def service_for(path: str) -> Service | None:
    """Return the service that serves a decoded path; None if the path is not routed."""
    if _HIDDEN.fullmatch(path):
        return None
    match = _TABLE.fullmatch(path)
    return _SERVICES[match.lastindex - 1] if match and match.lastindex else FALLBACK
