"""What happens to a cluster in its life, under steady requests: none may fail, except those of a pod that is killed.

Every round of the load checks promises too: a change is read back, a token follows it, a subject token is spent once.
"""

import json

import pytest

from tests.deployed.kubernetes.long.conftest import Failure, Load
from tests.support.cluster import NAMESPACE, SERVICES, kubectl
from tests.support.patience import eventually

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


def test_every_promise_held_throughout(load: Load) -> None:
    assert load.failures(0) == []
