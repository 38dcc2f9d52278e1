"""Who may connect to what, by the network policies of deploy/k8s: the picture "who talks to whom", and no more."""

import pytest

from tests.support.manifests import connections, kustomizations, of_kind, pods, selects

pytestmark = pytest.mark.manifests

SERVICES = {"token-service", "management-service", "template-service"}
ON_DATABASES = {*SERVICES, *(f"migrate-{service}" for service in SERVICES), "bootstrap"}
GATEWAYS = "stead/edge=true"
DNS = "kubernetes.io/metadata.name=kube-system:53"
API_SERVER = {"anywhere:443": {"bootstrap"}, "anywhere:6443": {"bootstrap"}}


def test_the_connections_of_the_overlay_local() -> None:
    on_postgres = {*ON_DATABASES, "provision"}
    assert connections("deploy/k8s/overlays/local") == {
        "edge:3000": {"anywhere"},
        "token-service:8000": {GATEWAYS, "edge", *SERVICES},
        "management-service:8000": {GATEWAYS, "edge", "management-service"},
        "template-service:8000": {GATEWAYS, "edge", "management-service"},
        "postgres:5432": on_postgres,
        "redis:6379": SERVICES,
        "nats:4222": {*SERVICES, "stead/subscriber=true"},
        DNS: {*on_postgres, "edge", "postgres", "redis", "nats"},
        **API_SERVER,
    }


def test_the_connections_of_the_overlay_production() -> None:
    assert connections("deploy/k8s/overlays/production") == {
        "token-service:8000": {GATEWAYS, *SERVICES},
        "management-service:8000": {GATEWAYS, "management-service"},
        "template-service:8000": {GATEWAYS, "management-service"},
        "192.0.2.10/32:5432": ON_DATABASES,
        "192.0.2.20/32:6379": SERVICES,
        "192.0.2.30/32:4222": SERVICES,
        DNS: ON_DATABASES,
        **API_SERVER,
    }


@pytest.mark.parametrize("overlay", kustomizations("overlays"))
def test_every_policy_selects_a_pod_and_every_service_can_be_reached(overlay: str) -> None:
    every, reachable = pods(overlay), connections(overlay)
    for policy in of_kind(overlay, "NetworkPolicy"):
        selected = [pod for pod in every if selects(policy["spec"]["podSelector"], pod.labels)]
        assert selected, policy["metadata"]["name"]
    for service in of_kind(overlay, "Service"):
        for port in service["spec"]["ports"]:
            assert reachable[f"{service['metadata']['name']}:{port['port']}"]
