"""What happens to a cluster in its life, under steady requests: none may fail, except those in flight on a killed pod.

Every round of the load checks promises too: a change is read back, a token follows it, a subject token is spent once.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deployed.kubernetes.long.conftest import Failure, Load
from tests.support.cluster import NAMESPACE, ROOT, SERVICES, kubectl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900), pytest.mark.usefixtures("system")]


def pods(service: str) -> list[str]:
    """Return the names of the pods of a service that are not being deleted."""
    found = json.loads(kubectl("get", "pods", "--selector", f"app.kubernetes.io/name={service}", "--output", "json"))
    return [each["metadata"]["name"] for each in found["items"] if "deletionTimestamp" not in each["metadata"]]


def rolled_out(service: str) -> None:
    kubectl("rollout", "status", f"deployment/{service}", "--timeout=300s")


def test_an_upgrade_with_migrations_fails_no_request(failures_of_the_upgrade: list[Failure]) -> None:
    assert failures_of_the_upgrade == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_rolling_restart_fails_no_request(load: Load, service: str) -> None:
    with load.during(f"rolling restart of {service}") as failures:
        kubectl("rollout", "restart", f"deployment/{service}")
        rolled_out(service)
    assert failures() == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_deleted_pod_finishes_its_requests(load: Load, service: str) -> None:
    with load.during(f"deletion of a pod of {service}") as failures:
        kubectl("delete", "pod", pods(service)[0])
        rolled_out(service)
    assert failures() == []


def test_scaling_up_and_down_fails_no_request(load: Load) -> None:
    with load.during("scaling from 2 to 4 and back") as failures:
        for replicas in (4, 2):
            kubectl("scale", "deployment", *SERVICES, f"--replicas={replicas}")
            for service in SERVICES:
                rolled_out(service)
                eventually(lambda service=service, replicas=replicas: len(pods(service)) == replicas)  # type: ignore[misc]
    assert failures() == []


def test_the_last_pods_are_not_evicted_together(load: Load) -> None:
    with load.during("eviction of every pod of token-service") as failures:
        first, second = pods("token-service")
        evict(first)
        with pytest.raises(AssertionError, match="disruption budget"):
            evict(second)
        rolled_out("token-service")
    assert failures() == []


def evict(pod: str) -> None:
    """Evict a pod, as draining its node does."""
    metadata = {"name": pod, "namespace": NAMESPACE}
    eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "--filename", "-", given=eviction)


NODE = Path("/run/offline-k8s")
needs_the_node = pytest.mark.skipif(not NODE.exists(), reason="the cluster is not that of .ci/cluster, on this machine")


def on_the_node(*command: str) -> None:
    subprocess.run([ROOT / ".ci/cluster", *command], check=True, timeout=60)


@needs_the_node
def test_a_restart_of_the_kubelet_fails_no_request(load: Load) -> None:
    with load.during("kill and restart of the kubelet, and a pod that it must replace") as failures:
        on_the_node("restart-kubelet")
        kubectl("delete", "pod", pods("token-service")[0])
        rolled_out("token-service")
    assert failures() == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_that_is_deleted_without_grace_fails_only_what_was_in_flight(load: Load, service: str) -> None:
    with load.during(f"deletion without grace of a pod of {service}") as failures:
        kubectl("delete", "pod", pods(service)[0], "--grace-period=0", "--force")
        rolled_out(service)
    assert only_in_flight(failures()), failures()


@needs_the_node
@pytest.mark.parametrize("service", SERVICES)
def test_a_killed_process_fails_only_what_was_in_flight(load: Load, service: str) -> None:
    with load.during(f"kill -9 of a process of {service}") as failures:
        pod = pods(service)[0]
        on_the_node("kill", status_of_container(pod)["containerID"])
        eventually(lambda: status_of_container(pod)["restartCount"] == 1 and status_of_container(pod)["ready"])
    assert only_in_flight(failures()), failures()


def status_of_container(pod: str) -> dict[str, Any]:
    (status,) = json.loads(kubectl("get", "pod", pod, "--output", "json"))["status"]["containerStatuses"]
    return dict(status)


def only_in_flight(failures: list[Failure]) -> bool:
    """Tell whether these can be the requests that a killed process was answering: one of each stream at most."""
    return all(each.was_in_flight for each in failures) and len({each.stream for each in failures}) == len(failures)


def test_every_promise_held_throughout(load: Load) -> None:
    assert [each for each in load.failures(0) if not each.was_in_flight] == []
