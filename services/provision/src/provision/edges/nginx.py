"""nginx, the edge in containers: of Docker Compose, and of the Kubernetes overlay with everything in the cluster."""

from typing import Final

from identity_common.http.routing import FALLBACK, NOT_ROUTED, ROUTES, expression

_HEAD: Final = """\
# Printed by `python -m provision edge --form FORM`, from the routing table; a test compares.

log_format without_queries '$remote_addr [$time_iso8601] "$request_method $uri" $status $body_bytes_sent $request_time';

server {
    listen 3000;
    access_log /dev/stdout without_queries;
    server_tokens off;
    client_max_body_size 11m;
    proxy_http_version 1.1;
    proxy_read_timeout 75s;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_connect_timeout 2s;
"""
# Docker's: names are looked up again, so that replicas may come and go.
_RESOLVER: Final = "    resolver 127.0.0.11 valid=2s;\n"


def nginx() -> str:
    """Return the configuration for Docker Compose."""
    return _server("nginx", _RESOLVER, "set $service {name}; proxy_pass http://$service:8000;")


def nginx_in_kubernetes() -> str:
    """Return the configuration for a pod: the address of a Service is looked up once, as it stays the same."""
    return _server("nginx-in-kubernetes", "", "proxy_pass http://{name}:8000;")


def _server(form: str, resolver: str, forward: str) -> str:
    """Return the server; the first expression that matches a path decides, as in the table."""
    hidden = [f"    location ~ ^{expression(pattern)}$ {{ return 404; }}\n" for pattern in NOT_ROUTED]
    routed = [_location(f"~ ^{expression(pattern)}$", service, forward) for pattern, service in ROUTES]
    locations = [*hidden, *routed, _location("/", FALLBACK, forward)]
    return _HEAD.replace("FORM", form) + resolver + "\n" + "".join(locations) + "}"


def _location(match: str, service: str, forward: str) -> str:
    return f"    location {match} {{ {forward.format(name=f'{service}-service')} }}\n"
