"""The verifier process is restarted while token-service, Redis and NATS are down, and does as it is configured."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest

from all_in_one.embedded import EmbeddedServers
from stead import ManagementClient
from tests.support.forked_service import ForkedService
from tests.support.impersonation import RESOURCE, Impersonation, client_token, cycle_works, exchange, make_machine
from tests.support.processes import Deployment, free_port
from tests.support.serving import accepting, serving
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

get = partial(httpx.get, timeout=WAIT_S)

OPTIONS = {
    "default": [],
    "closed": ["--when-stale", "closed"],
    "open": ["--when-stale-impersonated", "open"],
}


class Verifiers:
    """Processes by name; those of ``OPTIONS`` have their keys from a copy, ``keyless`` from the issuer."""

    def __init__(self, deployment: Deployment, impersonation: Impersonation, copy: str, logs: Path) -> None:
        replica = deployment.tokens[0].url
        required = ["--issuer", deployment.issuer, "--audience", RESOURCE]
        feed = ["--feed-url", replica, "--client-id", impersonation.client_id]
        self._environment = {**os.environ, "CLIENT_SECRET": impersonation.client_secret}
        self._logs = logs
        self._arguments = {
            name: [*required, *feed, "--jwks-url", f"{copy}/jwks", *more] for name, more in OPTIONS.items()
        }
        self._arguments["keyless"] = [*required, *feed, "--jwks-url", f"{replica}/oidc/jwks"]

    @contextmanager
    def running(self, *names: str) -> Iterator[dict[str, str]]:
        """Run those of these names, or all; yield their addresses."""
        with ExitStack() as started:
            addresses = {}
            for name in names or self._arguments:
                port = free_port()
                arguments = [*self._arguments[name], "--port", str(port)]
                log = self._logs / f"{name}.log"
                verifier = ForkedService("verifier", *arguments, environment=self._environment, log=log)
                addresses[name] = started.enter_context(accepting(verifier, port))
            yield addresses


@contextmanager
def everything_down(deployment: Deployment, servers: EmbeddedServers) -> Iterator[None]:
    """Kill token-service, Redis and NATS, and start them again when the body ends."""
    for victim in (*deployment.tokens, servers.valkey, servers.nats):
        victim.kill()
    try:
        yield
    finally:
        for server in (servers.valkey, servers.nats):
            server.start()
        for process in deployment.tokens:
            process.start()
        for process in deployment.tokens:
            process.wait_until_ready()


def statuses(verifier: str, tokens: list[str]) -> list[int]:
    checks = [get(f"{verifier}/check/-", headers={"Authorization": f"Bearer {token}"}) for token in tokens]
    return [check.status_code for check in checks]


def is_ready(verifier: str) -> bool:
    return get(f"{verifier}/health/ready").status_code == 200


def test_a_verifier_that_is_restarted_with_everything_down_does_as_configured(
    own_servers: EmbeddedServers,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    tmp_path: Path,
) -> None:
    """Keys are not part of the configuration: without them it accepts nothing, unless another server has a copy."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    replica = deployment.tokens[0].url
    machine = make_machine(management, impersonation)
    eventually(lambda: client_token(replica, machine).status_code == 200)
    own = client_token(replica, machine).json()["access_token"]
    begun = [management.subject_tokens.create(impersonation.user_id) for _ in range(2)]
    exchanged, ended = (exchange(replica, impersonation, each.token).json()["access_token"] for each in begun)
    tokens = [own, exchanged, ended]

    (tmp_path / "jwks").write_bytes(get(f"{replica}/oidc/jwks").content)
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", tmp_path, str(port)]
    with serving(command, port) as copy:
        verifiers = Verifiers(deployment, impersonation, copy, tmp_path)
        with verifiers.running("default") as addresses:
            eventually(lambda: statuses(addresses["default"], tokens) == [200, 200, 200])
            management.impersonations.end(begun[1].impersonation_id)
            eventually(lambda: statuses(addresses["default"], tokens) == [200, 200, 401])

        with ExitStack() as restarted:
            with everything_down(deployment, own_servers):
                addresses = restarted.enter_context(verifiers.running())
                assert {name: statuses(address, tokens) for name, address in addresses.items()} == {
                    "default": [200, 503, 503],
                    "closed": [503, 503, 503],
                    "open": [200, 200, 200],
                    "keyless": [503, 503, 503],
                }
                metrics = {name: get(f"{address}/metrics").text for name, address in addresses.items()}
                accepted = {"default": 1, "closed": 0, "open": 3, "keyless": 0}
                for name, count in accepted.items():
                    assert f"stead_verifier_feed_accepted_stale_total {count:.1f}" in metrics[name].splitlines(), name
                for name in OPTIONS:
                    eventually(partial(is_ready, addresses[name]))
                assert not is_ready(addresses["keyless"])
            for address in addresses.values():
                eventually(partial(lambda address: statuses(address, tokens) == [200, 200, 401], address))
                assert is_ready(address)
