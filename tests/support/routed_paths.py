"""Paths by which an edge is judged, and the service that serves each of them."""

import json
import re
from pathlib import Path

from identity_common.http.routing import NOT_ROUTED, process_of, service_for

DOCUMENT = Path(__file__).parents[2] / "services/management-service/src/management_service/openapi.json"
SERVED = sorted(
    {
        *(re.sub(r"\{\w+\}", "u-1.x", path) for path in json.loads(DOCUMENT.read_text())["paths"]),
        *("/oidc/me/impersonations", "/oidc/me/impersonations/i1/end", "/oidc/me/impersonationsX"),
        *("/console", "/console/users/u1", "/console/callback"),
        *("/account", "/account/sessions/s1/end", "/account/callback"),
        *("/sign-in", "/sign-in/consent", "/consent", "/oidc/auth", "/oidc/session/end", "/api/reference/start.js"),
        *(
            "/oidc/token/",
            "/api/users/u1/organizations/",
            "/api/users/u1/consents/c1",
            "/api/users/u1/organizations/o1",
        ),
        *(
            "/api",
            "/api/",
            "/api/organizationsX",
            "/api/configs/oidcX",
            "/api/x/users/u1/organizations",
            "/api/unknown",
        ),
    }
)
NOT_SERVED = [
    *(pattern.removesuffix("/*") for pattern in NOT_ROUTED),
    *(pattern.replace("/*", "/below") for pattern in NOT_ROUTED),
    *("/", "/oidcX", "/apiX", "/consoleX", "/accountX", "/x/oidc", "/x/api/users/u1/organizations"),
]


def expected_service(path: str) -> str:
    """Return the name of the Service in Kubernetes that serves a path."""
    service = service_for(path)
    assert service is not None
    return process_of(service)
