"""deploy/k8s: the overlay ``local`` on a real cluster, its edge, the first client, and a restart under load.

``make test-k8s`` has built the images and loaded them. The cluster is the one of the current context of kubectl.
"""

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from stead import IdentityError, ManagementClient
from tests.support.impersonation import Impersonation, client_token, exchange, make_machine, set_up
from tests.support.patience import eventually
from tests.support.processes import free_port

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
NAMESPACE = "stead"
SERVICES = ("token-service", "management-service", "template-service")


def kubectl(*words: str, given: str | None = None) -> str:
    """Run kubectl in the namespace; return what it prints."""
    finished = subprocess.run(
        ["kubectl", "--namespace", NAMESPACE, *words],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    return finished.stdout


@contextmanager
def forwarded_edge() -> Iterator[str]:
    """Yield an address on this machine that reaches the edge."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        ["kubectl", "--namespace", NAMESPACE, "port-forward", "service/edge", f"{port}:3000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/oidc/jwks").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the overlay, wait for all of it, and yield the address of the edge."""
    secrets = tmp_path_factory.mktemp("secrets")
    manifests = subprocess.run(
        [sys.executable, "-m", "provision", "secrets", "--secrets", str(secrets), "--namespace", NAMESPACE],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kubectl("create", "namespace", NAMESPACE)
    try:
        kubectl("apply", "--server-side", "--filename", "-", given=manifests)
        kubectl("apply", "--kustomize", "deploy/k8s/overlays/local")
        kubectl("wait", "--for=condition=complete", "job", "--all", "--timeout=300s")
        kubectl("wait", "--for=condition=available", "deployment", "--all", "--timeout=300s")
        with forwarded_edge() as url:
            yield url
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")


@pytest.fixture(scope="module")
def management(system: str) -> Iterator[ManagementClient]:
    """A client with the credentials that the Job ``bootstrap`` left in its Secret."""
    stored = json.loads(kubectl("get", "secret", "stead-first-client", "--output", "json"))["data"]
    first = {name: base64.b64decode(value).decode() for name, value in stored.items()}
    with ManagementClient(
        system, client_id=first["client_id"], client_secret=first["client_secret"], resource=first["resource"]
    ) as client:
        yield client


@pytest.fixture(scope="module")
def impersonation(management: ManagementClient) -> Impersonation:
    return set_up(management)


def test_an_impersonation_through_the_edge(
    system: str, management: ManagementClient, impersonation: Impersonation
) -> None:
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    first, second = (exchange(system, impersonation, subject_token) for _ in range(2))
    assert (first.status_code, first.json()["scope"]) == (200, "read:orders write:orders")
    assert (second.status_code, second.json()["error"]) == (400, "invalid_request")


def test_the_edge_hides_what_is_not_public(system: str) -> None:
    paths = ("/health/ready", "/metrics", "/schema", "/oidc/jwks", "/.well-known/openid-configuration")
    assert [httpx.get(f"{system}{path}").status_code for path in paths] == [404, 404, 404, 200, 200]


def test_the_bootstrap_prints_the_name_of_its_secret_only(management: ManagementClient) -> None:
    printed = kubectl("logs", "--selector", "app.kubernetes.io/name=bootstrap", "--tail", "-1")
    assert "stead-first-client" in printed
    stored = json.loads(kubectl("get", "secret", "stead-first-client", "--output", "json"))["data"]
    assert base64.b64decode(stored["client_secret"]).decode() not in printed


def test_no_secret_is_in_what_describe_shows() -> None:
    shown = kubectl("get", "pods,jobs,deployments,statefulsets,configmaps", "--output", "yaml")
    secrets = json.loads(kubectl("get", "secrets", "--output", "json"))["items"]
    values = {base64.b64decode(value).decode() for secret in secrets for value in secret["data"].values()}
    assert len(values) > 10
    assert [value for value in values if len(value) >= 16 and value in shown] == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_request_fails_during_a_rolling_restart(
    system: str, management: ManagementClient, impersonation: Impersonation, service: str
) -> None:
    machine = make_machine(management, impersonation)
    eventually(lambda: client_token(system, machine).status_code == 200)
    outcomes: list[int | str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                outcomes.append(client_token(system, machine).status_code)
                management.users.get(impersonation.user_id)
            except (httpx.TransportError, IdentityError) as error:
                outcomes.append(repr(error))
            time.sleep(0.02)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        kubectl("rollout", "restart", f"deployment/{service}")
        kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")
    finally:
        stop.set()
        asking.join()
    assert len(outcomes) > 50
    assert set(outcomes) == {200}
