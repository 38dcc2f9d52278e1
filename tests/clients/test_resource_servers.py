"""Unmodified verifiers in front of an API: they accept our access tokens and refuse what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from string import Template

import httpx2 as httpx
import pytest

from tests.support.browser import ApplicationSite
from tests.support.conversation import NODE, converse
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.world import World

pytestmark = [pytest.mark.clients, pytest.mark.slow]

ENVOY = Template("""
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: $port}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: api
          route_config:
            virtual_hosts:
            - {name: api, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: backend}}]}
          http_filters:
          - name: envoy.filters.http.jwt_authn
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
              providers:
                stead:
                  issuer: $issuer
                  audiences: [$audience]
                  remote_jwks: {http_uri: {uri: $issuer/jwks, cluster: identity, timeout: 5s}}
              rules: [{match: {prefix: /}, requires: {provider_name: stead}}]
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: backend
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: $backend}}}]}]
  - name: identity
    load_assignment:
      cluster_name: identity
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: $identity}}}]}]
""")


def test_envoy_accepts_tokens_for_its_audience_alone(
    world: World, site: ApplicationSite, pypi_python: Path, tmp_path: Path
) -> None:
    port = free_port()
    configuration = ENVOY.substitute(
        port=port,
        issuer=world.stack.issuer,
        audience=world.resource,
        backend=socket_address(site.origin),
        identity=socket_address(world.stack.base_url),
    )
    (tmp_path / "envoy.yaml").write_text(configuration)
    command = [pypi_python.parent / "envoy", "-c", tmp_path / "envoy.yaml", "--use-dynamic-base-id", "-l", "warning"]
    right, other = access_token(world, world.resource), access_token(world, world.other_resource)
    with serving(command, port) as address, httpx.Client(base_url=address) as http:
        assert {
            kind: http.get("/things", headers={"Authorization": f"Bearer {token}"}).status_code
            for kind, token in {"right": right, "other": other, "forged": forged(right)}.items()
        } == {"right": 200, "other": 403, "forged": 401}
        assert http.get("/things").status_code == 401


def test_express_oauth2_jwt_bearer_accepts_tokens_with_the_right_scope(world: World, npm_packages: Path) -> None:
    seen = converse(
        [NODE, npm_packages / "express_oauth2_jwt_bearer.mjs"],
        ISSUER=world.stack.issuer,
        RESOURCE=world.resource,
        ACCESS_TOKEN=access_token(world, world.resource),
    )
    assert seen == {
        "right": [200, world.customer],
        "tooNarrow": [403, "insufficient_scope"],
        "none": 401,
        "forged": 401,
    }


def access_token(world: World, resource: str) -> str:
    answer = world.exchange(world.subject_token(), resource=resource)
    return str(answer.json()["access_token"])


def forged(token: str) -> str:
    return f"{token[:-8]}AAAAAAAA"


def socket_address(origin: str) -> str:
    url = httpx.URL(origin)
    return f"{{address: {url.host}, port_value: {url.port}}}"
