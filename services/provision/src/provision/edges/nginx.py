"""nginx, the edge in containers: of Docker Compose, and of the Kubernetes overlay with everything in the cluster."""

from typing import Final

from identity_common.http.routing import FALLBACK, NOT_ROUTED, ROUTES, expression

_HEAD: Final = """\
# Printed by `python -m provision edge --form FORM`, from the routing table; a test compares.

log_format without_queries '$remote_addr [$time_iso8601] "$request_method $uri" $status $body_bytes_sent $request_time';

UPSTREAMSserver {
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


# A Service still sends connections to the pod of a process that was just killed. They are refused, and another attempt
# reaches another pod, in one of two cases. "timeout" is left out: a slow answer is not asked for again.
_ATTEMPTS: Final = 8
_RETRY: Final = "    proxy_next_upstream error;\n"


def nginx() -> str:
    """Return the configuration for Docker Compose."""
    return _server("nginx", _RESOLVER, "set $service {name}; proxy_pass http://$service:8000;")


def nginx_in_kubernetes() -> str:
    """Return the configuration for a pod: the address of a Service is looked up once, as it stays the same."""
    return _server("nginx-in-kubernetes", _RETRY, "proxy_pass http://{name};", upstreams=_upstreams())


def _upstreams() -> str:
    """Return an upstream for each Service, with its one address once for each attempt."""
    names = sorted({f"{service}-service" for service in (*dict(ROUTES).values(), FALLBACK)})
    block = ("upstream {name} {{\n" + "    server {name}:8000 max_fails=0;\n" * _ATTEMPTS + "}}\n\n").format
    return "".join(block(name=name) for name in names)


def _server(form: str, settings: str, forward: str, *, upstreams: str = "") -> str:
    """Return the server; the first expression that matches a path decides, as in the table."""
    hidden = [f"    location ~ ^{expression(pattern)}$ {{ return 404; }}\n" for pattern in NOT_ROUTED]
    routed = [_location(f"~ ^{expression(pattern)}$", service, forward) for pattern, service in ROUTES]
    locations = [*hidden, *routed, _location("/", FALLBACK, forward)]
    head = _HEAD.replace("FORM", form).replace("UPSTREAMS", upstreams)
    return head + settings + "\n" + "".join(locations) + "}"


def _location(match: str, service: str, forward: str) -> str:
    return f"    location {match} {{ {forward.format(name=f'{service}-service')} }}\n"
