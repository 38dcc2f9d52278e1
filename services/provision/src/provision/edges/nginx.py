"""nginx, the edge in containers: of Docker Compose, and of the Kubernetes overlay with everything in the cluster.

No request is sent twice, whatever its method. ``proxy_next_upstream error`` would send GET, PUT and DELETE again after
a service received them and closed the connection, and cannot be limited to connections that fail. So it is off, and
``error_page`` decides: as long as no byte was sent, it makes another attempt, which reaches another replica about every
second time. This bridges the second or two in which connections still go to a process that was just killed.
"""

from typing import Final

from identity_common.http.routing import FALLBACK, NOT_ROUTED, ROUTES, Service, expression, process_of

_ATTEMPTS: Final = 8

_HEAD: Final = """\
# Printed by `python -m provision edge --form FORM`, from the routing table; a test compares.

log_format without_queries '$remote_addr [$time_iso8601] "$request_method $uri" $status $body_bytes_sent $request_time'
                           ' [$upstream_addr] [$upstream_status]';

# After a failure: another attempt while not a byte of the request was sent, ATTEMPTS in all. Nothing is sent twice.
map "$upstream_bytes_sent;$upstream_status" $after_failure {
    volatile;
    "~^0(?: : 0){0,REPEATED};" @service;
    "~504$" @timeout;
    default @failed;
}

UPSTREAMSserver {
    listen 3000;
    access_log /dev/stdout without_queries;
    error_log /dev/stderr emerg;  # all others about requests have the query; the access log has what failed
    server_tokens off;
    client_max_body_size 11m;
    large_client_header_buffers 4 32k;  # a token has up to 16 KiB
    proxy_buffer_size 32k;  # a redirect has a state of up to 8 KiB, encoded
    proxy_buffers 8 32k;
    proxy_http_version 1.1;
    proxy_read_timeout 75s;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_connect_timeout 2s;
    proxy_next_upstream off;
    error_page 502 504 = $after_failure;
    recursive_error_pages on;
"""
# Docker's: names are looked up again, so that replicas may come and go.
_RESOLVER: Final = "    resolver 127.0.0.11 valid=2s;\n"


def nginx() -> str:
    """Return the configuration for Docker Compose."""
    return _server("nginx", "http://$service:8000", settings=_RESOLVER)


def nginx_in_kubernetes() -> str:
    """Return the configuration for a pod: the address of a Service is looked up once, as it stays the same."""
    names = sorted({process_of(service) for service in (*dict(ROUTES).values(), FALLBACK)})
    upstreams = "".join(f"upstream {name} {{ server {name}:8000; }}\n" for name in names)
    return _server("nginx-in-kubernetes", "http://$service", upstreams=f"{upstreams}\n")


def _server(form: str, address: str, *, settings: str = "", upstreams: str = "") -> str:
    """Return the server; the first expression that matches a path decides, as in the table."""
    locations = [
        *(f"~ ^{expression(pattern)}$ {{ return 404; }}" for pattern in NOT_ROUTED),
        *(_routed(f"~ ^{expression(pattern)}$", service, address) for pattern, service in ROUTES),
        _routed("/", FALLBACK, address),
        f"@service {{ proxy_pass {address}; }}",
        '@timeout { return 504 "Gateway Timeout\\n"; }',
        '@failed { return 502 "Bad Gateway\\n"; }',
    ]
    head = (
        _HEAD.replace("FORM", form)
        .replace("UPSTREAMS", upstreams)
        .replace("ATTEMPTS", str(_ATTEMPTS))
        .replace("REPEATED", str(_ATTEMPTS - 2))
    )
    return head + settings + "\n" + "".join(f"    location {each}\n" for each in locations) + "}"


def _routed(match: str, service: Service, address: str) -> str:
    return f"{match} {{ set $service {process_of(service)}; proxy_pass {address}; }}"
