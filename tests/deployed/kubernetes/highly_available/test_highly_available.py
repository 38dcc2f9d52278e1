"""The overlay ``highly-available``: each store loses a server under load, and nothing that was acknowledged is lost.

A server is lost with its place: its pod stays away until the node is uncordoned. Times are printed.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pytest

from stead import ManagementClient
from tests.support.cluster import (
    NAMESPACE,
    ROOT,
    Edge,
    first_client,
    installed,
    kubectl,
    printed_by,
    secret,
    start_program,
    temporary_namespace,
)
from tests.support.impersonation import Impersonation, set_up
from tests.support.manifests import documented_hosts
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

OVERLAY = "deploy/k8s/overlays/highly-available"
PROGRAM = (ROOT / "tests/deployed/kubernetes/highly_available/acknowledged_load.py").read_text()
LOAD = "stead-load"
QUIET_S = 5
"""As long without a failure counts as recovered."""
RECOVERED_S = 90


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    began = time.time()
    with installed(tmp_path_factory.mktemp("secrets"), overlay=OVERLAY, hosts=documented_hosts()) as edge:
        print(f"\nthe overlay was ready after {time.time() - began:.0f} s")
        yield edge


@pytest.fixture(scope="module")
def management(edge: Edge) -> Iterator[ManagementClient]:
    with first_client(edge.url) as client:
        yield client


@pytest.fixture(scope="module")
def impersonation(management: ManagementClient) -> Impersonation:
    return set_up(management)


@pytest.fixture(scope="module", autouse=True)
def load(impersonation: Impersonation) -> Iterator[None]:
    first = secret("stead-first-client")
    setup = {
        "url": f"http://edge.{NAMESPACE}:3000",
        "management": {"resource": first["resource"], "auth": [first["client_id"], first["client_secret"]]},
        "user": impersonation.user_id,
        "client": [impersonation.client_id, impersonation.client_secret],
        "exchange": {key: value for key, value in impersonation.form("").items() if key != "subject_token"},
    }
    with temporary_namespace(LOAD):
        start_program("load", PROGRAM, namespace=LOAD, settings={"SETUP": json.dumps(setup)})
        kubectl("wait", "--for=condition=Ready", "pod/load", "--timeout=120s", namespace=LOAD)
        eventually(lambda: len(told("spent")) > 5, within_s=60)
        yield


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed_by("load", LOAD) if line.startswith("{")]


def told(what: str) -> list[Any]:
    return [line[what] for line in lines() if what in line]


@contextmanager
def lost(pod: str) -> Iterator[None]:
    """Kill a pod, and let it return after the body."""
    nodes = kubectl("get", "nodes", "--output", "name").split()
    for node in nodes:
        kubectl("cordon", node)
    try:
        kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        yield
    finally:
        for node in nodes:
            kubectl("uncordon", node)
    kubectl("rollout", "status", f"statefulset/{pod.rpartition('-')[0]}", "--timeout=300s")


def await_recovery(fault: str, since: float) -> None:
    """Wait until both kinds of request succeed again; print how long that took, and check what was answered."""

    def has_recovered() -> bool:
        found = [line for line in lines() if line["at"] > since]
        after = max([since, *(line["at"] for line in found if "failed" in line)])
        kinds = [kind for line in found if line["at"] > after for kind in ("created", "spent") if kind in line]
        return time.time() > after + QUIET_S and kinds.count("created") > 3 < kinds.count("spent")

    eventually(has_recovered, within_s=RECOVERED_S)
    failures = [line for line in lines() if "failed" in line and line["at"] > since]
    last = max([0.0, *(line["at"] - since for line in failures)])
    statuses = sorted({line["status"] for line in failures})
    print(f"\n{fault}: {len(failures)} failures {statuses}, the last after {last:.1f} s")
    assert [line for line in failures if line["status"] == 503 and not line["retry_after"]] == []


def primary_of_redis() -> str:
    asked = ("redis-cli", "-p", "26379", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "stead")
    names = [named for pod in pods("redis") if (named := ask(pod, "sentinel", *asked))]
    return max(set(names), key=names.count).split(".")[0]


def primary_of_postgresql() -> str:
    query = ("psql", "-U", "postgres", "-XAtc", "SELECT pg_is_in_recovery()")
    (primary,) = (pod for pod in pods("postgres") if ask(pod, "postgres", *query).strip() == "f")
    return primary


def ask(pod: str, container: str, *command: str) -> str:
    return kubectl("exec", pod, "--container", container, "--", *command)


def pods(app: str) -> list[str]:
    found = json.loads(kubectl("get", "pods", "--selector", f"app.kubernetes.io/name={app}", "--output", "json"))
    return [each["metadata"]["name"] for each in found["items"] if each["status"]["phase"] == "Running"]


def standbys() -> int:
    query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
    return int(ask(primary_of_postgresql(), "postgres", "psql", "-U", "postgres", "-XAtc", query))


@pytest.mark.parametrize("server", ["nats-0", "nats-1"])
def test_nats_loses_a_server(server: str) -> None:
    since = time.time()
    with lost(server):
        await_recovery(f"{server} lost", since)


def test_redis_loses_its_primary() -> None:
    since, before = time.time(), primary_of_redis()
    with lost(before):
        await_recovery(f"the primary of Redis, {before}, lost", since)
        assert primary_of_redis() != before
    eventually(lambda: redis_replicas() == 2, within_s=60)


def redis_replicas() -> int:
    shown = ask(primary_of_redis(), "sentinel", "redis-cli", "-p", "26379", "SENTINEL", "MASTERS").split()
    return int(shown[shown.index("num-slaves") + 1])


def promote() -> None:
    finished = subprocess.run([ROOT / OVERLAY / "promote"], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    print(f"\n{finished.stdout.strip()}")


def test_postgresql_loses_its_primary_and_a_standby_is_promoted() -> None:
    since, before = time.time(), primary_of_postgresql()
    with lost(before):
        promote()
        print(f"promoted after {time.time() - since:.0f} s")
        await_recovery(f"the primary of PostgreSQL, {before}, lost", since)
        assert primary_of_postgresql() != before
    eventually(lambda: standbys() == 2, within_s=120)


def test_a_primary_of_postgresql_that_lives_becomes_a_standby_of_the_promoted_one() -> None:
    since, before = time.time(), primary_of_postgresql()
    promote()
    eventually(lambda: replaced(before), within_s=60)
    await_recovery(f"the primary of PostgreSQL, {before}, replaced while it lives", since)
    eventually(lambda: standbys() == 2, within_s=120)


def replaced(before: str) -> bool:
    try:
        return primary_of_postgresql() != before
    except (AssertionError, ValueError):  # two, or none that answers
        return False


def test_postgresql_loses_a_standby() -> None:
    since, primary = time.time(), primary_of_postgresql()
    with lost(next(pod for pod in pods("postgres") if pod != primary)):
        await_recovery("a standby of PostgreSQL lost", since)


def test_nothing_acknowledged_is_lost_and_no_token_is_spent_twice(
    edge: Edge, management: ManagementClient, impersonation: Impersonation
) -> None:
    """At last, after all of the above."""
    found = lines()
    created = [line["created"] for line in found if "created" in line]
    spent = [line["spent"] for line in found if "spent" in line]
    assert [line for line in found if "spent_twice" in line] == []
    assert [each for each in created if management.users.get(each).id != each] == []
    with httpx.Client(base_url=edge.url, auth=impersonation.auth, timeout=30) as client:
        again = [client.post("/oidc/token", data=impersonation.form(token)).status_code for token in spent]
    print(f"\n{len(created)} users created, {len(spent)} tokens spent")
    assert set(again) == {400}
