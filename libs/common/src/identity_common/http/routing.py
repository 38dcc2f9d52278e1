"""The one routing table of the edge: which service answers a path.

nginx, the HTTPRoute and the embedded dispatcher all follow it. A pattern is exact (``/consent``), a prefix
(``/oidc/*``: the path itself and everything below it), or has one-segment wildcards (``/api/users/{}/organizations``).
Everything else belongs to management-service, except what every service has for itself and shows nobody outside.
"""

import re
from typing import Final, Literal

Service = Literal["management", "token", "template"]

ROUTES: Final[tuple[tuple[str, Service], ...]] = (
    ("/oidc/*", "token"),
    ("/.well-known/*", "token"),
    ("/sign-in/*", "token"),
    ("/consent/*", "token"),
    ("/api/configs/oidc/*", "token"),
    ("/api/users/{}/consents/*", "token"),
    ("/api/organization-scopes/*", "template"),
    ("/api/organization-roles/*", "template"),
    ("/api/organization-template/*", "template"),
    ("/api/organizations/*", "template"),
    ("/api/users/{}/organizations", "template"),
    ("/api/applications/{}/organizations", "template"),
)
FALLBACK: Final[Service] = "management"
NOT_ROUTED: Final = ("/health/*", "/metrics/*", "/schema/*")


def _expression(pattern: str) -> str:
    below = pattern.endswith("/*")
    path = re.escape(pattern.removesuffix("/*")).replace(r"\{\}", "[^/]+")
    return path + ("(?:/.*)?" if below else "/?")


_SERVICES: Final = [service for _, service in ROUTES]
_TABLE: Final = re.compile("|".join(f"({_expression(pattern)})" for pattern, _ in ROUTES), re.DOTALL)
_HIDDEN: Final = re.compile("|".join(_expression(pattern) for pattern in NOT_ROUTED), re.DOTALL)


def service_for(path: str) -> Service | None:
    """Return the service that answers this path (decoded, without a query); none for what is not routed."""
    if _HIDDEN.fullmatch(path):
        return None
    match = _TABLE.fullmatch(path)
    return _SERVICES[match.lastindex - 1] if match and match.lastindex else FALLBACK
