"""The network policies as a cluster enforces them: each arrow that they allow connects, every other pair is refused.

tests/manifests says which arrows those are.
"""

import json

import pytest

from tests.support.cluster import NAMESPACE, OVERLAY, kubectl, printed_by, start_program, temporary_namespace
from tests.support.manifests import connections, pods

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

API_SERVER = "anywhere:443"
LISTENERS = {
    "token-service:8000": "token-service.stead:8000",
    "management-service:8000": "management-service.stead:8000",
    "template-service:8000": "template-service.stead:8000",
    "console:8000": "console.stead:8000",
    "postgres:5432": "postgres.stead:5432",
    "redis:6379": "redis.stead:6379",
    "nats:4222": "nats.stead:4222",
    "edge:3000": "edge.stead:3000",
    API_SERVER: "kubernetes.default:443",
}
"""An address for what the policies allow connections to."""

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
    allowed = connections(OVERLAY)
    probes = {app: (f"probe-{app}", NAMESPACE) for app in {*(pod.app for pod in pods(OVERLAY)), "unknown"}}
    with (
        temporary_namespace("stead-probe-edge", edge="true") as edge,
        temporary_namespace("stead-probe-subscriber", subscriber="true") as subscriber,
        temporary_namespace("stead-probe-elsewhere") as elsewhere,
    ):
        others = {"stead/edge=true": edge, "stead/subscriber=true": subscriber, "anywhere": elsewhere}
        for app, (pod, namespace) in probes.items():
            start_program(pod, PROBE, namespace=namespace, labels={"app.kubernetes.io/name": app}, serves=False)
        for namespace in others.values():
            start_program("probe", PROBE, namespace=namespace)
        try:
            reached = {app: reached_by(*probe) for app, probe in probes.items()}
            reached_from_others = {place: reached_by("probe", namespace) for place, namespace in others.items()}
        finally:
            kubectl("delete", "pod", *(pod for pod, _ in probes.values()), "--now")
            kubectl("delete", "secret", *(pod for pod, _ in probes.values()))
    assert reached == {app: {name for name in LISTENERS if app in allowed[name]} for app in probes}
    # The way from other namespaces to the API server is their cluster's business.
    assert reached_from_others == {
        place: {name for name in LISTENERS if name == API_SERVER or allowed[name] & {place, "anywhere"}}
        for place in others
    }


def reached_by(pod: str, namespace: str) -> set[str]:
    """Wait for the end of a probe; return the names of what it reached."""
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{pod}", "--timeout=120s", namespace=namespace)
    return set(json.loads(printed_by(pod, namespace)[-1]))
