"""The arrows of docs/architecture and docs/operations/kubernetes.md: each one connects, every other pair is refused."""

import json

import pytest

from tests.support.cluster import NAMESPACE, SERVICES, kubectl, printed_by, start_program, temporary_namespace

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

MIGRATIONS = tuple(f"migrate-{service}" for service in SERVICES)
STORES = ("postgres", "redis", "nats")
LISTENERS = {
    **{service: f"{service}.stead:8000" for service in SERVICES},
    "postgres": "postgres.stead:5432",
    "redis": "redis.stead:6379",
    "nats": "nats.stead:4222",
    "edge": "edge.stead:3000",
    "api-server": "kubernetes.default:443",
}
EVERYWHERE = {"edge", "api-server"}
"""What a namespace reaches that has no policies of its own; the API server is its cluster's business."""

ARROWS: dict[str, set[str]] = {
    **{service: {"token-service", *STORES} for service in SERVICES},
    **{migration: {"postgres"} for migration in MIGRATIONS},
    "provision": {"postgres"},
    "bootstrap": {"postgres", "api-server"},
    "edge": set(SERVICES),
    **{store: set() for store in STORES},
    "unknown": set(),
}
OF_OTHER_NAMESPACES: dict[str, set[str]] = {
    "edge": {*EVERYWHERE, *SERVICES},
    "subscriber": {*EVERYWHERE, "nats"},
    "elsewhere": EVERYWHERE,
}

# A pod may start before its rules: wait until they are there, and a connection keeps its answer.
PROBE = f"""
import json, socket, time
from concurrent.futures import ThreadPoolExecutor

def connects(address):
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True

time.sleep(10)
listeners = {json.dumps(LISTENERS)}
with ThreadPoolExecutor(len(listeners)) as threads:
    print(json.dumps([name for name, each in zip(listeners, threads.map(connects, listeners.values())) if each]))
"""


def test_each_arrow_connects_and_every_other_pair_is_refused(system: str) -> None:
    pods = {name: (f"probe-{name}", NAMESPACE) for name in ARROWS}
    with (
        temporary_namespace("stead-probe-edge", edge="true") as edge,
        temporary_namespace("stead-probe-subscriber", subscriber="true") as subscriber,
        temporary_namespace("stead-probe-elsewhere") as elsewhere,
    ):
        others = {"edge": edge, "subscriber": subscriber, "elsewhere": elsewhere}
        for name, (pod, namespace) in pods.items():
            start_program(pod, PROBE, namespace=namespace, labels={"app.kubernetes.io/name": name}, serves=False)
        for namespace in others.values():
            start_program("probe", PROBE, namespace=namespace)
        try:
            reached = {name: reached_by(*pod) for name, pod in pods.items()}
            reached_from_others = {name: reached_by("probe", namespace) for name, namespace in others.items()}
        finally:
            kubectl("delete", "pod", *(pod for pod, _ in pods.values()), "--now")
            kubectl("delete", "secret", *(pod for pod, _ in pods.values()))
    assert reached == ARROWS
    assert reached_from_others == OF_OTHER_NAMESPACES


def reached_by(pod: str, namespace: str) -> set[str]:
    """Wait for the end of a probe; return the names of what it reached."""
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{pod}", "--timeout=120s", namespace=namespace)
    return set(json.loads(printed_by(pod, namespace)[-1]))
