"""nginx, the edge in containers."""

from typing import Final

from identity_common.http.routing import FALLBACK, NOT_ROUTED, ROUTES, expression

_HEAD: Final = """\
# Printed by `python -m provision edge --form nginx`, from the routing table; a test compares.

log_format without_queries '$remote_addr [$time_iso8601] "$request_method $uri" $status $body_bytes_sent $request_time';

server {
    listen 3000;
    access_log /dev/stdout without_queries;
    server_tokens off;
    # Docker's: names are looked up again, so that replicas may come and go.
    resolver 127.0.0.11 valid=2s;

    client_max_body_size 11m;
    proxy_http_version 1.1;
    proxy_read_timeout 75s;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_connect_timeout 2s;

"""


def nginx() -> str:
    """Return the configuration; the first expression that matches a path decides, as in the table."""
    hidden = [f"    location ~ ^{expression(pattern)}$ {{ return 404; }}\n" for pattern in NOT_ROUTED]
    routed = [_location(f"~ ^{expression(pattern)}$", service) for pattern, service in ROUTES]
    return _HEAD + "".join([*hidden, *routed, _location("/", FALLBACK)]) + "}"


def _location(match: str, service: str) -> str:
    return f"    location {match} {{ set $service {service}-service; proxy_pass http://$service:8000; }}\n"
