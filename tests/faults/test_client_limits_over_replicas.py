"""Failed client authentications and token requests are limited over all replicas; without Redis, not at all."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from all_in_one.embedded import EmbeddedServers
from stead import ManagementClient
from tests.support.impersonation import Impersonation, Machine, client_token, make_machine
from tests.support.processes import Deployment, ServiceProcess, stopped
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

AT_ONCE = 64
FAILURES, REQUESTS = 20, 30
ENDPOINTS = ("/oidc/token", "/oidc/token/introspection", "/oidc/token/revocation")


@pytest.fixture(scope="module")
def replicas(deployment: Deployment) -> Iterator[list[ServiceProcess]]:
    """Two replicas with small limits, until the end of the module."""
    replicas = deployment.tokens[:2]
    before = [replica.environment for replica in replicas]

    def restart(**environment: str) -> None:
        for replica in replicas:
            replica.kill()
            replica.configure(**environment)
            replica.start()
        for replica in replicas:
            replica.wait_until_ready()

    restart(
        CLIENT_FAILURES_PER_CLIENT=str(FAILURES),
        CLIENT_REQUESTS_PER_MINUTE=str(REQUESTS),
    )
    yield replicas
    for replica, environment in zip(replicas, before, strict=True):
        replica.environment = environment
    restart()


@pytest.fixture
def machine(replicas: list[ServiceProcess], management: ManagementClient, impersonation: Impersonation) -> Machine:
    """A client that both replicas know; it has made two requests."""
    machine = make_machine(management, impersonation)
    for replica in replicas:
        eventually(lambda url=replica.url: client_token(url, machine).status_code == 200)  # type: ignore[misc]
    return machine


def fail(url: str, endpoint: str, machine: Machine) -> httpx.Response:
    wrong = (machine.client_id, secrets.token_hex(16))
    return httpx.post(f"{url}{endpoint}", data={"token": "x"}, auth=wrong, timeout=60)


def test_failures_at_once_count_exactly_and_the_right_secret_works(
    replicas: list[ServiceProcess], machine: Machine
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        attempts = [(replicas[n % 2].url, ENDPOINTS[n % 3], machine) for n in range(AT_ONCE)]
        answers = list(pool.map(lambda attempt: fail(*attempt), attempts))
    assert Counter(answer.status_code for answer in answers) == {401: FAILURES, 429: AT_ONCE - FAILURES}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"] == "temporarily_unavailable"
    assert 1 <= int(refused.headers["Retry-After"]) <= 902
    assert [client_token(replica.url, machine).status_code for replica in replicas] == [200, 200]


def test_a_client_that_asks_too_often_is_told_so(
    replicas: list[ServiceProcess], machine: Machine, management: ManagementClient
) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda n: client_token(replicas[n % 2].url, machine), range(AT_ONCE)))
    issued = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(issued) + len(refused) == AT_ONCE
    assert {answer.headers["RateLimit-Policy"] for answer in answers} == {f'"client";q={REQUESTS};w=60'}
    left = sorted(int(answer.headers["RateLimit"].partition("r=")[2].partition(";")[0]) for answer in issued)
    assert left == [*range(len(issued))], "each request has a number of its own, and the last one is the limit"
    assert len(issued) < REQUESTS
    assert {answer.headers["RateLimit"].partition(";t=")[0] for answer in refused} == {'"client";r=0'}
    assert all(1 <= int(answer.headers["Retry-After"]) <= 62 for answer in refused)

    def reasons() -> list[str | None]:
        return [entry.reason for entry in management.logs.list(application_id=machine.client_id)]

    eventually(lambda: "client.too_many_requests" in reasons())
    assert reasons().count("client.too_many_requests") == 1, "a flood must not fill the trail"


def test_without_redis_clients_authenticate_and_fail_as_ever(
    replicas: list[ServiceProcess], machine: Machine, own_servers: EmbeddedServers
) -> None:
    with stopped(own_servers.valkey):
        failed = [fail(replica.url, endpoint, machine) for replica in replicas for endpoint in ENDPOINTS]
        assert [answer.json()["error"] for answer in failed] == ["invalid_client"] * len(failed)
        issued = client_token(replicas[0].url, machine)
        assert (issued.status_code, "RateLimit" in issued.headers) == (200, False)
