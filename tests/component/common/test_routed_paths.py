"""Every layer judges the path that the router routes, however a client spells it."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from tests.support.running_stack import RunningStack

FORWARDED = {"X-Forwarded-For": "203.0.113.7"}
PAGE = {"Origin": "https://page.example.com"}
SPELLINGS = (
    "//{}",
    "///{}",
    "/{}/",
    "/{}//",
    "//{}/",
    "/./{}",
    "/x/../{}",
    "/%2e/{}",
    "/x/%2e%2e/{}",
    "/%2F{}",
    "/{};x",
    "http://a//{}",
)


def sent(stack: RunningStack, target: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Send a GET whose target no client library has normalised."""
    address = urlsplit(stack.base_url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
    try:
        connection.request("GET", target, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def encoded(path: str) -> str:
    return f"%{ord(path[0]):02x}{path[1:]}"


@pytest.mark.parametrize("path", ["metrics", "schema", "schema/openapi.json"])
@pytest.mark.parametrize("spelling", ["/{}", *SPELLINGS])
def test_no_spelling_reaches_what_the_edge_hides(stack: RunningStack, path: str, spelling: str) -> None:
    for spelled in (path, encoded(path)):
        assert sent(stack, spelling.format(spelled), FORWARDED)[0] == 404


@pytest.mark.parametrize("target", ["//health/ready", "/health//ready", "/health/ready/", "/%68ealth/ready"])
def test_health_is_that_of_all_services_in_every_spelling(stack: RunningStack, target: str) -> None:
    plain, spelled = (sent(stack, each, {}) for each in ("/health/ready", target))
    assert (spelled[0], spelled[2]) == (plain[0], plain[2])
    assert [set(headers) - {"connection"} for _, headers, _ in (plain, spelled)] == [set(plain[1])] * 2


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/oidc/jwks", "access-control-allow-origin"),
        ("/oidc/.well-known/openid-configuration", "access-control-allow-origin"),
        ("/oidc/token", "vary"),
        ("/oidc/me/impersonations", "access-control-allow-origin"),
        ("/api/organizations/o1/users/u1/scopes", "access-control-allow-origin"),
        ("/api/users", "cache-control"),
    ],
)
def test_a_spelled_path_has_the_headers_of_its_route(stack: RunningStack, path: str, header: str) -> None:
    status, headers, _ = sent(stack, path, PAGE)
    assert headers[header]
    for target in (f"/{path}", f"{path}/", path.replace("/", "//"), path.replace("/o", "/%6f", 1)):
        spelled = sent(stack, target, PAGE)
        assert (spelled[0], spelled[1].get(header)) == (status, headers[header]), target
