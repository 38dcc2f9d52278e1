"""Who may connect to what by the network policies of deploy/k8s: "Who talks to whom" in docs/architecture.md."""

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.support.manifests import (
    ROOT,
    connections,
    examples_in_the_documents,
    kustomizations,
    manifests,
    of_kind,
    pods,
    selects,
)

pytestmark = pytest.mark.manifests

WITH_DATABASE = {"token-service", "management-service", "template-service"}
SERVICES = {*WITH_DATABASE, "console"}
RESTORED = {service: f"restored-{service}" for service in WITH_DATABASE}
ON_DATABASES = {*WITH_DATABASE, *(f"migrate-{service}" for service in WITH_DATABASE), *RESTORED.values(), "bootstrap"}
ON_REDIS = {*SERVICES, RESTORED["token-service"]}
ON_NATS = {*WITH_DATABASE, RESTORED["management-service"], RESTORED["template-service"]}
GATEWAYS = "stead/edge=true"
MONITORING = "stead/monitoring=true"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
DNS = ("kubernetes.io/metadata.name=kube-system:53", "stead/dns=true:53")
API_SERVER = {"anywhere:443": {"bootstrap"}, "anywhere:6443": {"bootstrap"}}


def test_the_connections_of_the_overlay_local() -> None:
    on_postgres = {*ON_DATABASES, "provision"}
    assert connections("deploy/k8s/overlays/local") == {
        "edge:3000": {"anywhere"},
        "token-service:8000": {GATEWAYS, "edge", "management-service", "template-service", "console"},
        "management-service:8000": {GATEWAYS, "edge", "console"},
        "template-service:8000": {GATEWAYS, "edge", "console"},
        "console:8000": {GATEWAYS, "edge"},
        "postgres:5432": on_postgres,
        "redis:6379": ON_REDIS,
        "nats:4222": {*ON_NATS, "stead/subscriber=true"},
        **{key: {*on_postgres, "console", "edge", "postgres", "redis", "nats"} for key in DNS},
        **API_SERVER,
    }


def test_the_overlay_highly_available_adds_the_sentinels_and_the_servers_among_each_other() -> None:
    before = connections("deploy/k8s/overlays/local")
    assert connections("deploy/k8s/overlays/highly-available") == before | {
        "postgres:5432": before["postgres:5432"] | {"postgres"},
        "redis:6379": ON_REDIS | {"redis"},
        "redis:26379": ON_REDIS | {"redis"},
        "nats:6222": {"nats"},
    }


def test_the_connections_of_the_overlay_production() -> None:
    assert connections("deploy/k8s/overlays/production") == {
        "token-service:8000": {GATEWAYS, "management-service", "template-service", "console"},
        "management-service:8000": {GATEWAYS, "console"},
        "template-service:8000": {GATEWAYS, "console"},
        "console:8000": {GATEWAYS},
        "192.0.2.16/28:5432": ON_DATABASES,
        "192.0.2.32/28:6379": ON_REDIS,
        "192.0.2.48/28:4222": ON_NATS,
        "192.0.2.64/28:465": {"management-service"},
        "192.0.2.64/28:587": {"management-service"},
        "192.0.2.80/28:443": {"management-service"},
        **{key: {*ON_DATABASES, "console"} for key in DNS},
        **API_SERVER,
    }


@pytest.mark.parametrize("overlay", kustomizations("overlays"))
def test_the_component_observability_adds_scrapes_and_a_collector_and_nothing_else(
    overlay: str, tmp_path: Path
) -> None:
    (example,) = (each for each in examples_in_the_documents() if each["kind"] == "Kustomization")
    assert (example["resources"], example["components"]) == (["../production"], ["../../components/observability"])
    root = os.path.relpath(ROOT, tmp_path)
    places = {"resources": [f"{root}/{overlay}"], "components": [f"{root}/deploy/k8s/components/observability"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({**example, **places}))
    observed = str(tmp_path)

    before = connections(overlay)
    scraped = {f"{service}:8000": before[f"{service}:8000"] | {MONITORING} for service in SERVICES}
    assert connections(observed) == before | scraped | {f"{MONITORING}:4318": SERVICES}
    exporting = {each["metadata"]["name"] for each in of_kind(observed, "ConfigMap") if ENDPOINT in each["data"]}
    assert exporting == SERVICES
    for manifest in manifests(observed):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_a_prometheus_of_the_namespace_monitoring_may_list_the_pods_and_nothing_else() -> None:
    role, binding, _ = yaml.safe_load_all((ROOT / "deploy/k8s/components/observability/prometheus.yaml").read_text())
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]


@pytest.mark.parametrize("overlay", kustomizations("overlays"))
def test_every_policy_selects_a_pod_and_every_service_can_be_reached(overlay: str) -> None:
    every, reachable = pods(overlay), connections(overlay)
    for policy in of_kind(overlay, "NetworkPolicy"):
        selected = [pod for pod in every if selects(policy["spec"]["podSelector"], pod.labels)]
        assert selected, policy["metadata"]["name"]
    for service in of_kind(overlay, "Service"):
        for port in service["spec"]["ports"]:
            assert reachable[f"{service['metadata']['name']}:{port['port']}"]
