"""Ingresses for ingress-nginx and for Traefik.

Both controllers try the longest expression first, which decides as the table does: an expression that overlaps
another is longer only if it is more specific.
"""

from collections.abc import Mapping
from typing import Final

from identity_common.http.routing import Service, expression, process_of
from provision.edges.kubernetes import PORT, TABLE, header

# The access logs of both controllers contain query strings, and with them authorization codes: off by default.
_NGINX: Final = {
    "nginx.ingress.kubernetes.io/use-regex": "true",
    "nginx.ingress.kubernetes.io/proxy-body-size": "11m",
    "nginx.ingress.kubernetes.io/proxy-read-timeout": "75",
    "nginx.ingress.kubernetes.io/proxy-buffer-size": "32k",  # a redirect has a state of up to 8 KiB, encoded
    "nginx.ingress.kubernetes.io/enable-access-log": "false",
    # Without "timeout": a slow request is not sent again.
    "nginx.ingress.kubernetes.io/proxy-next-upstream": "error",
}
_TRAEFIK: Final = {
    "traefik.ingress.kubernetes.io/router.pathmatcher": "PathRegexp",
    "traefik.ingress.kubernetes.io/router.observability.accesslogs": "false",
}


def ingress_nginx() -> str:
    """Return the Ingress for ingress-nginx, which anchors an expression at the start of the path itself."""
    return _ingress("nginx", _NGINX, anchor="")


def ingress_traefik() -> str:
    """Return the Ingress for Traefik, which searches for an expression anywhere in the path.

    Kubernetes insists that the text begin with a slash, so the anchor comes after one that is repeated zero times.
    """
    return _ingress("traefik", _TRAEFIK, anchor="/{0}^")


def _ingress(controller: str, annotations: Mapping[str, str], *, anchor: str) -> str:
    notes = "".join(f"    {name}: '{value}'\n" for name, value in annotations.items())
    paths = "".join(_path(f"{anchor}{expression(pattern)}$", service) for pattern, service in TABLE)
    return (
        header(f"ingress-{controller}")
        + (
            "apiVersion: networking.k8s.io/v1\n"
            "kind: Ingress\n"
            f"metadata:\n  name: stead\n  annotations:\n{notes}"
            f"spec:\n  ingressClassName: {controller}\n  rules:\n    - http:\n        paths:\n{paths}"
        ).rstrip()
    )


def _path(path: str, service: Service) -> str:
    backend = f"{{service: {{name: {process_of(service)}, port: {{number: {PORT}}}}}}}"
    return f"          - path: '{path}'\n            pathType: ImplementationSpecific\n            backend: {backend}\n"
